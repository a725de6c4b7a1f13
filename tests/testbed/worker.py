"""A worker run from the command line, as on another machine, to be stopped, killed and put to sleep."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.testbed.process import Process, plain_environment

CHECKOUT = Path(__file__).resolve().parents[2]


class Worker:
    """`pipeline-kafka worker --dsn …` of this checkout, as a child process with its log in a file.

    ``dsn`` is a libpq connection string; ``slot`` None lets the worker find one.
    """

    def __init__(self, dsn: str, log_file: Path, slot: int | None = None, python: str = sys.executable) -> None:
        self.dsn = dsn
        self.log_file = log_file
        self.slot = slot
        self.python = python
        self.process: Process | None = None

    def start(self) -> Worker:
        """Start it; it may not have joined its group yet."""
        argv: list[str | Path] = [self.python, "-m", "pipeline_kafka", "worker", "--dsn", self.dsn]
        if self.slot is not None:
            argv += ["--slot", str(self.slot)]
        env = plain_environment() | {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
        self.process = Process(argv, self.log_file, env=env)
        return self

    @property
    def pid(self) -> int:
        """Its process id. Raises RuntimeError before start()."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self.process is not None and self.process.running

    @property
    def exit_code(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._started().exit_code

    def stop(self, timeout: float = 10) -> int:
        """SIGTERM; returns the exit code, -9 when it had to be killed after ``timeout`` s."""
        return self._started().stop(signal.SIGTERM, timeout)

    def kill9(self) -> None:
        """kill -9, and wait until it is gone."""
        self._started().kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self._started().send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._started().send(signal.SIGCONT)

    def log(self) -> str:
        """What it wrote, as text."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def _started(self) -> Process:
        if self.process is None:
            raise RuntimeError("the worker was not started")
        return self.process

"""Child processes that never outlive the process that started them, unless they are asked to."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO

from tests.testbed.leftovers import end_at_exit

Popen = subprocess.Popen[bytes]
_starts: queue.SimpleQueue[tuple[Callable[[], Popen], Future[Popen]]] = queue.SimpleQueue()


class Process:
    """A running command whose output goes to a file.

    ``user`` is the OS user to run as. When this process ends, in whatever way, the kernel sends the child
    ``death_signal`` (PR_SET_PDEATHSIG); None lets it live on. It has a session of its own, so that Ctrl-C
    in a terminal reaches only this process, which then stops its children in order.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        death_signal: signal.Signals | None = signal.SIGKILL,
    ) -> None:
        command = [str(word) for word in argv]
        if death_signal is not None:
            command = ["setpriv", "--pdeathsig", death_signal.name.removeprefix("SIG"), *command]
        with log.open("ab") as output:
            self._popen = _in_spawner(lambda: _start(command, output, env, user))
        self._death_signal = death_signal
        self.pid = self._popen.pid
        if death_signal is not None:
            end_at_exit(self)

    @property
    def running(self) -> bool:
        """Is it neither ended nor killed?"""
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Its exit status, -N for killed by signal N, None while it runs."""
        return self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        self._popen.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code. Raises subprocess.TimeoutExpired after ``timeout`` s."""
        return self._popen.wait(timeout)

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 30) -> int:
        """Ask it to end by a signal, and kill it when it has not after ``timeout`` seconds."""
        self.send(signal.SIGCONT)
        self.send(number)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """kill -9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        return self._popen.wait()

    def end(self) -> None:
        """End it the way this process's death would."""
        self.stop(self._death_signal or signal.SIGKILL, timeout=10)


def run(argv: Sequence[str | Path], *, user: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return its output. Raises RuntimeError with the output on failure."""
    command = [str(word) for word in argv]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        cwd="/",
        check=False,
        user=user,
        group=user,
        extra_groups=_groups(user),
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


def plain_environment() -> dict[str, str]:
    """This process's environment without what would lead a server's Python or libpq astray."""
    ours = ("PG", "PYTHON", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _start(command: list[str], output: BinaryIO, env: Mapping[str, str] | None, user: str | None) -> Popen:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=env,
        cwd="/",
        user=user,
        group=user,
        extra_groups=_groups(user),
        start_new_session=True,
    )


def _groups(user: str | None) -> list[str] | None:
    """Another user's process keeps none of our supplementary groups."""
    return None if user is None else []


def _in_spawner(start: Callable[[], Popen]) -> Popen:
    """Start a process from a thread that lives as long as this process.

    The kernel sends the death signal when the *thread* that forked ends, and tests do start servers in
    short-lived threads.
    """
    answer: Future[Popen] = Future()
    _starts.put((start, answer))
    return answer.result()


def _serve_starts() -> None:
    while True:
        start, answer = _starts.get()
        try:
            answer.set_result(start())
        except OSError as error:
            answer.set_exception(error)


threading.Thread(target=_serve_starts, name="spawner", daemon=True).start()

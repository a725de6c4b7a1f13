"""The command line: `pipeline-kafka worker`, which the server runs too, and `pipeline-kafka status`."""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from contextlib import suppress

import psycopg
from psycopg.conninfo import make_conninfo

from . import __version__, log, status
from .consumer_state import backoff
from .errors import LetGo, NothingToDo, PipelineError, describe
from .log import logger
from .replay_worker import FIRST_SLOT as FIRST_REPLAY_SLOT
from .replay_worker import ReplayWorker
from .runner import HEALTHY
from .worker import Worker

# What the shim in workers/pipeline_kafka.c reads: 0 is "not needed", anything else "start me again".
EXIT_FAILED, EXIT_NOT_NEEDED, EXIT_LET_GO = 1, 2, 75
SWITCH_EVERY = 0.0005  # seconds a thread may run while another waits: the loader has little to do, but often
M_ARENA_MAX = -8  # glibc's malloc.h
GRACE = 4.5  # seconds after SIGTERM until the process ends whatever it is doing


def main() -> None:
    """Run the command; exits with its code."""
    arguments = _parser().parse_args()
    sys.exit(arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pipeline-kafka", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    worker = commands.add_parser("worker", help="read Kafka for a database until stopped")
    _database_arguments(worker)
    worker.add_argument(
        "--slot",
        type=int,
        help="the worker's number (default: the first free one from 100 on; from 1024 on those of replays)",
    )
    worker.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    worker.add_argument("--supervised", action="store_true", help="end with stdin, as the server's child does")
    worker.set_defaults(run=_worker)
    shown = commands.add_parser("status", help="show consumers and workers")
    _database_arguments(shown)
    shown.add_argument("--json", action="store_true", help="print JSON")
    shown.set_defaults(run=_status)
    return parser


def _database_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dsn", default="", help="libpq connection string or URI (default: PG* variables)")
    parser.add_argument("--database", help="database name, over the one in --dsn")


def _dsn(arguments: argparse.Namespace) -> str:
    """Passwords come by environment, so that no process list shows them."""
    dsn: str = arguments.dsn or os.environ.get("PIPELINE_KAFKA_CONNINFO", "")
    return make_conninfo(dsn, dbname=arguments.database) if arguments.database else make_conninfo(dsn)


def _status(arguments: argparse.Namespace) -> int:
    try:
        status.show(_dsn(arguments), as_json=arguments.json)
    except (psycopg.Error, PipelineError) as error:
        print(f"pipeline-kafka status: {describe(error)}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def _worker(arguments: argparse.Namespace) -> int:
    log.set_up(arguments.log_level)
    sys.setswitchinterval(SWITCH_EVERY)
    _keep_memory_together()
    _collect_seldom()
    stopping = threading.Event()
    failures = 0
    while True:
        begun = time.monotonic()
        code = _work(arguments, stopping)
        if arguments.supervised or code not in (EXIT_FAILED, EXIT_LET_GO) or stopping.is_set():
            return code
        # Nobody starts a worker again that was started by hand: it waits an outage out by itself.
        failures = 1 if time.monotonic() - begun > HEALTHY else failures + 1
        if stopping.wait(backoff(failures)):
            return 0


def _collect_seldom() -> None:
    """A batch is tens of thousands of objects without cycles: to look for some every 700 takes a sixth of the time."""
    gc.set_threshold(100_000, 10, 10)


def _keep_memory_together() -> None:
    """Let glibc's allocator use two arenas and not eight a core: what each thread's keeps is never given back."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)


def _work(arguments: argparse.Namespace, stopping: threading.Event) -> int:
    try:
        kind = ReplayWorker if arguments.slot is not None and arguments.slot >= FIRST_REPLAY_SLOT else Worker
        worker = kind(_dsn(arguments), arguments.slot, local=arguments.supervised)
        _stop_when_told(worker, stopping, arguments.supervised)
        worker.run()
    except NothingToDo as reason:
        logger.info("ends: %s", reason)
        return 0 if arguments.supervised else EXIT_NOT_NEEDED
    except LetGo as reason:
        logger.info("lets go: %s", reason)
        if arguments.supervised:
            os._exit(EXIT_LET_GO)  # the server rolls back what the other connections were doing
        return EXIT_LET_GO
    except psycopg.Error as error:
        logger.error("%s", describe(error))
        return EXIT_FAILED
    return 0


def _stop_when_told(worker: Worker, stopping: threading.Event, supervised: bool) -> None:
    """By SIGTERM or SIGINT; and for the server's child by the end of stdin, whose other end the shim holds."""

    def stop(*_: object) -> None:
        timer = threading.Timer(GRACE, os._exit, [EXIT_FAILED])
        timer.daemon = True
        timer.start()
        stopping.set()
        worker.stop()

    def stop_with_parent() -> None:
        with suppress(OSError):  # the shim's end may be reset rather than closed
            while os.read(0, 1024):
                pass
        stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if supervised:
        threading.Thread(target=stop_with_parent, daemon=True).start()


if __name__ == "__main__":
    main()

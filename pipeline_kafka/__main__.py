"""The command line: `pipeline-kafka worker`, which the server runs too, and `pipeline-kafka status`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable

import psycopg
from psycopg.conninfo import make_conninfo

from . import __version__, log
from .errors import LetGo, NothingToDo, describe
from .log import logger

EXIT_FAILED, EXIT_LET_GO = 1, 75  # what the shim in workers/pipeline_kafka.c reads: 0 is "not needed"
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
    worker.add_argument("--slot", type=int, help="the worker's number (default: the first free one from 100 on)")
    worker.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    worker.add_argument("--supervised", action="store_true", help="end with stdin, as the server's child does")
    worker.set_defaults(run=_worker)
    status = commands.add_parser("status", help="show consumers and workers")
    _database_arguments(status)
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=_status)
    return parser


def _database_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dsn", default="", help="libpq connection string or URI (default: PG* variables)")
    parser.add_argument("--database", help="database name, over the one in --dsn")


def _dsn(arguments: argparse.Namespace) -> str:
    """Passwords come by environment, so that no process list shows them."""
    dsn: str = arguments.dsn or os.environ.get("PIPELINE_KAFKA_CONNINFO", "")
    return make_conninfo(dsn, dbname=arguments.database) if arguments.database else make_conninfo(dsn)


def _status(arguments: argparse.Namespace) -> int:
    from .status import show

    try:
        show(_dsn(arguments), as_json=arguments.json)
    except psycopg.Error as error:
        print(f"pipeline-kafka status: {describe(error)}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def _worker(arguments: argparse.Namespace) -> int:
    from .worker import Worker

    who = "worker" if arguments.slot is None else f"worker {arguments.slot}"
    log.set_up(arguments.log_level, f"{who} of {arguments.database}" if arguments.database else who)
    try:
        worker = Worker(_dsn(arguments), arguments.slot, local=arguments.supervised)
        _stop_on_signals(worker.stop)
        if arguments.supervised:
            threading.Thread(target=_stop_with_parent, args=(worker.stop,), daemon=True).start()
        worker.run()
    except NothingToDo as reason:
        logger.info("ends: %s", reason)
    except LetGo as reason:
        logger.info("lets go: %s", reason)
        return EXIT_LET_GO
    except psycopg.Error as error:
        logger.error("%s", describe(error))
        return EXIT_FAILED
    return 0


def _stop_on_signals(stop: Callable[[], None]) -> None:
    def handle(number: int, frame: object) -> None:
        _end_in_time()
        stop()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def _stop_with_parent(stop: Callable[[], None]) -> None:
    """The server's shim holds the other end of stdin: when it is gone, so is the reason to work."""
    while os.read(0, 1024):
        pass
    _end_in_time()
    stop()


def _end_in_time() -> None:
    timer = threading.Timer(GRACE, os._exit, [EXIT_FAILED])
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()

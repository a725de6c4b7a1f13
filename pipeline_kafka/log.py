"""One line an event on stderr: the level first, which the server's shim turns into its own.

In: logging records. Out: "LEVEL message" lines.
"""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("pipeline_kafka")
logging.addLevelName(logging.CRITICAL, "ERROR")  # librdkafka's worst; the server's shim knows no such word


class _OneLine(logging.Formatter):
    """A record, traceback included, on one line, so that it stays one entry of the server's log."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", " | ")


def set_up(level: str) -> None:
    """Send records of at least ``level`` (debug, info, warning, error) to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(levelname)s %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False

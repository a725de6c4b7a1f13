"""The process that answers one question, and ends with whoever asked.

In: a Request on stdin, whose end is that of the session. Out: frames on stdout.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import BinaryIO

import msgspec
from confluent_kafka import KafkaException

from .. import log
from ..kafka import error_of
from .protocol import DONE, PIECE, ROW, TROUBLE, Request, Trouble, Unanswered, packed
from .questions import QUESTIONS


def main() -> None:
    """Answer and exit, without waiting for clients that may still be connecting."""
    log.logger.disabled = True
    request = msgspec.msgpack.decode(_read(), type=Request)
    threading.Thread(target=_end_with_session, daemon=True).start()
    with suppress(OSError):
        _answer(request, sys.stdout.buffer)
    os._exit(0)


def _read() -> bytes:
    length = int.from_bytes(sys.stdin.buffer.read(4), "big")
    return sys.stdin.buffer.read(length)


def _end_with_session() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _answer(request: Request, out: BinaryIO) -> None:
    try:
        for row in QUESTIONS[request.question](request, **request.arguments):
            if isinstance(row, bytes):
                out.write(packed(PIECE, row))
                out.flush()  # the next may be long in coming
            else:
                out.write(packed(ROW, msgspec.json.encode(row)))
        last = packed(DONE)
    except Unanswered as unanswered:
        last = packed(TROUBLE, msgspec.json.encode(unanswered.trouble))
    except Exception as error:
        said = error_of(error).str() if isinstance(error, KafkaException) else f"{type(error).__name__}: {error}"
        last = packed(TROUBLE, msgspec.json.encode(Trouble("58000", f"{request.question}: {said}")))
    out.write(last)
    out.flush()


main()

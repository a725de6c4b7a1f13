"""What a session and the process that asks Kafka for it say to each other.

In: bytes of pipes. Out: one Request down, Frames up.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

ROW, PIECE = b"R", b"P"  # a JSON object; bytes that the asker knows how to read
TROUBLE, DONE = b"T", b"D"  # the last frame: a Trouble, as JSON; the end of an answer
_HEAD = struct.Struct("!cI")  # a frame's kind, and how many bytes of it follow


class Request(msgspec.Struct):
    """A question, by its name in questions.py, and all it takes to answer it. ``timeout`` is in seconds."""

    question: str
    arguments: dict[str, Any]
    brokers: list[str]
    properties: dict[str, str]
    timeout: float


class Trouble(msgspec.Struct):
    """Why there is no answer, as an error of PostgreSQL."""

    sqlstate: str
    error: str
    detail: str | None = None
    hint: str | None = None


class Frame(NamedTuple):
    """A piece of an answer."""

    kind: bytes
    data: bytes


class Unanswered(Exception):
    """A question that cannot be answered, with why."""

    def __init__(self, sqlstate: str, error: str, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(error)
        self.trouble = Trouble(sqlstate, error, detail, hint)


def packed(kind: bytes, data: bytes = b"") -> bytes:
    """Return a frame's bytes."""
    return _HEAD.pack(kind, len(data)) + data


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes in; yield the frames that are whole."""
        self._bytes += data
        while len(self._bytes) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._bytes)
            end = _HEAD.size + length
            if len(self._bytes) < end:
                return
            frame = Frame(kind, bytes(self._bytes[_HEAD.size : end]))
            del self._bytes[:end]
            yield frame

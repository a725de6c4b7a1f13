"""Several payloads in a row, as one.

In: payloads, in Kafka's order. Out: a Payload of as many statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import psycopg
from confluent_kafka import Message

from .payload import Payload


class Series:
    """A Payload that loads its parts one after another."""

    def __init__(self, parts: Sequence[Payload]) -> None:
        self.messages: list[Message] = list(chain.from_iterable(part.messages for part in parts))
        self._parts = parts
        self._starts = list(accumulate(map(len, parts), initial=0))
        self._loading = 0  # the part that load() was at when it last began a statement

    def __len__(self) -> int:
        return len(self.messages)

    def load(self, cursor: psycopg.Cursor[Any], start: int, stop: int) -> int:
        """Write messages[start:stop]; see Payload."""
        written = 0
        for number, (part, first) in enumerate(zip(self._parts, self._starts, strict=False)):
            within = max(start - first, 0), min(stop - first, len(part))
            if within[0] < within[1]:
                self._loading = number
                written += part.load(cursor, *within)
        return written

    def locate(self, error: psycopg.Error, start: int) -> int | None:
        """Return the index of the message that the part which failed points at; see Payload."""
        if not self._parts:
            return None
        first = self._starts[self._loading]
        index = self._parts[self._loading].locate(error, max(start - first, 0))
        return None if index is None else first + index

    def unreadable(self, cursor: psycopg.Cursor[Any], error: psycopg.Error, start: int, stop: int) -> bool:
        """Ask the part that failed; see Payload."""
        part, first = self._parts[self._loading], self._starts[self._loading]
        return part.unreadable(cursor, error, max(start - first, 0), min(stop - first, len(part)))

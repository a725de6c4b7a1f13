"""Rows out of JSON, for statements that PostgreSQL reads the JSON in.

In: messages, and the rows in each. Out: a Payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple, Protocol

import psycopg
from confluent_kafka import Message

from .metadata import Field, texts
from .payload import Refused, Reject

Shape = frozenset[str]  # the columns that a row names


class Row(NamedTuple):
    """One row: a JSON object, and the columns it names.

    ``rest`` are its fields that are no column, as a JSON object, where one is kept for them. A row that ``is_gone``
    names the key of one to delete.
    """

    object: bytes
    shape: Shape
    rest: str | None = None
    is_gone: bool = False


class Value(NamedTuple):
    """What a column takes that no field of the rows' objects gives it: a text a row."""

    field: Field
    texts: Sequence[str | None]


Reader = Callable[[Message], list[Row]]


class Writer(Protocol):
    """What makes statements of rows."""

    def __call__(self, cursor: psycopg.Cursor[Any], rows: Sequence[Row], values: Sequence[Value]) -> int:
        """Write rows, one at least, and return how many were written. Raises psycopg.Error."""

    def read(self, cursor: psycopg.Cursor[Any], rows: Sequence[Row]) -> None:
        """Have the server read rows without the relation and its triggers. Raises psycopg.Error."""


class Read(NamedTuple):
    """Messages, the rows of each, and those that were refused."""

    messages: list[Message]
    rows: list[list[Row]]
    rejects: list[Reject]


def read_all(read: Reader, messages: Iterable[Message]) -> Read:
    """Read messages one by one."""
    done = Read([], [], [])
    for message in messages:
        try:
            done.rows.append(read(message))
        except Refused as refused:
            done.rejects.append(Reject(message, refused.sqlstate, str(refused)))
        else:
            done.messages.append(message)
    return done


class Rows:
    """A Payload of rows. ``fields`` are the columns filled from the message itself, ``rest`` that of unknown fields."""

    def __init__(
        self,
        write: Writer,
        fields: Sequence[Field],
        rest: Field | None,
        messages: Sequence[Message],
        rows: Sequence[Sequence[Row]],
    ) -> None:
        self.messages = messages
        self._write = write
        self._fields = fields
        self._rest = rest
        self._rows = list(chain.from_iterable(rows))
        self._first = list(accumulate(map(len, rows), initial=0))  # of each message's rows; and their number

    def __len__(self) -> int:
        return len(self.messages)

    def load(self, cursor: psycopg.Cursor[Any], start: int, stop: int) -> int:
        """Write messages[start:stop]; see Payload. Messages without a row need no statement."""
        rows = self._rows[self._first[start] : self._first[stop]]
        if not rows:
            return 0
        values = [Value(field, self._a_row_each(field, start, stop)) for field in self._fields]
        if self._rest is not None:
            values.append(Value(self._rest, [row.rest for row in rows]))
        return self._write(cursor, rows, values)

    def locate(self, error: psycopg.Error, start: int) -> int | None:
        """Return None: PostgreSQL does not say which row it failed at."""
        return None

    def unreadable(self, cursor: psycopg.Cursor[Any], error: psycopg.Error, start: int, stop: int) -> bool:
        """Tell whether a value is to blame, by having the rows read again; see Payload."""
        try:
            with cursor.connection.transaction():
                self._write.read(cursor, self._rows[self._first[start] : self._first[stop]])
        except psycopg.Error as again:
            return again.sqlstate == error.sqlstate
        return False

    def _a_row_each(self, field: Field, start: int, stop: int) -> list[str | None]:
        """Return a field's value in messages[start:stop], repeated for each row of a message."""
        return [
            text
            for index, text in enumerate(texts(field, self.messages[start:stop]), start)
            for _ in range(self._first[index], self._first[index + 1])
        ]

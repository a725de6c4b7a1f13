"""Format json: an object is a row, an array of objects a row each; the relation's columns are the schema.

In: messages. Out: a Payload that one INSERT … SELECT from json_to_recordset() loads, so that every value is
what PostgreSQL itself makes of it, an absent field is the column's default and null is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import psycopg
from confluent_kafka import Message
from psycopg.types.json import Json

from ..model import Consumer, Relation
from . import document, fast, syntax
from .insert import Shape, insert, reading
from .metadata import Field, texts
from .payload import Payload, Refused, Reject, fillable


def decode(
    consumer: Consumer, relation: Relation, fields: Sequence[Field], messages: Sequence[Message]
) -> tuple[Payload, list[Reject]]:
    """Check each message by itself: two broken ones, joined, can make a valid row."""
    if document.takes_documents(relation):
        return document.decode(consumer, relation, fields, messages)
    if quick := fast.decode(relation, fields, messages):
        return quick, []
    payload = Rows(relation, fields)
    rejects = []
    for message in messages:
        try:
            payload.add(message)
        except Refused as refused:
            rejects.append(Reject(message, refused.sqlstate, str(refused)))
    return payload, rejects


class _Shapes(dict[tuple[str, ...], Shape]):
    """The shape of each order of field names seen; equal shapes are one object, so dictionaries of them are cheap."""

    def __init__(self, columns: Shape) -> None:
        self._columns = columns
        self._known: dict[Shape, Shape] = {}

    def __missing__(self, names: tuple[str, ...]) -> Shape:
        shape = self._columns.intersection(names)
        self[names] = shape = self._known.setdefault(shape, shape)
        return shape


class Rows:
    """A Payload of JSON objects.

    ``_fragments`` holds a message's objects, separated by commas; ``_shapes`` has an entry a row, and
    ``_first`` the number of each message's first row, then the number of rows.
    """

    def __init__(self, relation: Relation, fields: Sequence[Field]) -> None:
        self.messages: list[Message] = []
        self._relation = relation
        self._fields = fields
        self._fragments: list[bytes] = []
        self._shapes: list[Shape] = []
        self._first = [0]
        self._shape_of = _Shapes(frozenset(column.name for column in fillable(relation)))

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, message: Message) -> None:
        """Take a message in. Raises Refused where it is not an object or an array of objects."""
        value = message.value() or b""
        if not value.isascii():
            syntax.check_utf8(value)
        if value.startswith(b"{"):  # as rows() would, in fewer calls: this is what most messages are
            try:
                self._shapes.append(self._shape_of[tuple(syntax.fields(value))])
            except (msgspec.DecodeError, RecursionError) as error:
                raise syntax.reason(value, error) from None
        else:
            rows = syntax.rows(value)
            value = syntax.objects(value) if rows else b""
            self._shapes += map(self._shape_of.__getitem__, rows)
        self.messages.append(message)
        self._fragments.append(value)
        self._first.append(len(self._shapes))

    def load(self, cursor: psycopg.Cursor[Any], start: int, stop: int) -> int:
        """Write messages[start:stop]; see Payload. Messages without a row need no statement."""
        shapes = self._shapes[self._first[start] : self._first[stop]]
        if not shapes:
            return 0
        messages = self.messages[start:stop]
        fields = [(field, self._a_row_each(texts(field, messages), start)) for field in self._fields]
        cursor.execute(*insert(self._relation, fields, shapes, _array_of(self._fragments[start:stop])))
        return cursor.rowcount

    def locate(self, error: psycopg.Error, start: int) -> int | None:
        """Return None: json_to_recordset() does not say which row it failed at."""
        return None

    def unreadable(self, cursor: psycopg.Cursor[Any], error: psycopg.Error, start: int, stop: int) -> bool:
        """Tell whether a value is to blame, by reading them without the relation and its triggers; see Payload."""
        shapes = self._shapes[self._first[start] : self._first[stop]]
        try:
            with cursor.connection.transaction():
                cursor.execute(*reading(self._relation, shapes, _array_of(self._fragments[start:stop])))
        except psycopg.Error as again:
            return again.sqlstate == error.sqlstate
        return False

    def _a_row_each(self, values: Sequence[str | None], start: int) -> Iterator[str | None]:
        """Repeat a value of each message from ``start`` on for each row of it."""
        for index, value in enumerate(values, start):
            for _ in range(self._first[index], self._first[index + 1]):
                yield value


def _array_of(fragments: list[bytes]) -> Json:
    """Return objects as a JSON array parameter, copied once."""
    objects = list(filter(None, fragments))
    parts = [b","] * (2 * len(objects) + 1)
    parts[0], parts[-1] = b"[", b"]"
    parts[1::2] = objects
    return Json(b"".join(parts), dumps=bytes)

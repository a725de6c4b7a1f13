"""Format json, the reference: an object is a row, an array of objects a row each.

In: messages. Out: their rows, to be read by json_to_recordset(), so that every value is what PostgreSQL itself makes of
it, an absent field is the column's default and null is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from confluent_kafka import Message

from ..model import Relation
from . import syntax
from .payload import Refused, fillable
from .rows import Row, Shape

TOO_MANY = "2203E"  # too_many_json_object_members


class Names(NamedTuple):
    """What an object's field names come to: the columns to fill, and those that are no column."""

    shape: Shape
    unknown: tuple[str, ...]


class Objects:
    """Reads messages of objects. ``unknown`` says what becomes of fields that are no column:

    'ignore'; 'error' refuses the message; any other is the column that takes them (none of the relation's here).
    """

    def __init__(self, relation: Relation, unknown: str = "ignore") -> None:
        self._unknown = unknown
        self._relation = relation.qualified
        self._filled = frozenset(column.name for column in fillable(relation))
        self._columns = frozenset(column.name for column in relation.columns)
        self._known: dict[tuple[str, ...], Names] = {}
        self._shapes: dict[Shape, Shape] = {}

    def __call__(self, message: Message) -> list[Row]:
        """Return a message's rows. Raises Refused where it is not an object or an array of objects.

        Each message is checked by itself: two broken ones, joined, can make a valid row.
        """
        value = message.value() or b""
        if not value.isascii():
            syntax.check_utf8(value)
        rows = [self._row(text, fields) for text, fields in syntax.rows(value)]
        syntax.check_no_zero(value)
        return rows

    def _row(self, text: bytes, fields: Mapping[str, msgspec.Raw]) -> Row:
        shape, unknown = self._look_up(tuple(fields))
        if not unknown or self._unknown == "ignore":
            return Row(text, shape)
        if self._unknown == "error":
            raise Refused(TOO_MANY, f"{_named(unknown)} no column of {self._relation} (unknown_fields => 'error')")
        return Row(text, shape | {self._unknown}, _object({name: fields[name] for name in unknown}))

    def _look_up(self, names: tuple[str, ...]) -> Names:
        """Messages that are alike have the same names in the same order. Equal shapes are one object, cheap to hash."""
        if names not in self._known:
            shape = self._filled.intersection(names)
            unknown = tuple(name for name in names if name not in self._columns)
            self._known[names] = Names(self._shapes.setdefault(shape, shape), unknown)
        return self._known[names]


def _object(fields: Mapping[str, msgspec.Raw]) -> str:
    return msgspec.json.encode(fields).decode()


def _named(names: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"field {quoted} is" if len(names) == 1 else f"fields {quoted} are"

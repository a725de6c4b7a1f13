"""Rows by their keys: on_conflict => 'update', and deletion by a message without a value.

In: rows. Out: as few statements as have the effect of applying them one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from ..model import Key, Relation
from .insert import read_only
from .merge import delete, repeated, upsert
from .metadata import Field
from .rows import Row, Value

Step = list[int]  # numbers of rows that one statement can take


class Upsert:
    """Writes rows by a key. ``rest`` is for unknown fields; a row without any leaves it alone."""

    def __init__(self, relation: Relation, key: Key, rest: Field | None) -> None:
        self._relation = relation
        self._key = key
        self._names = frozenset(column.name for column in key.columns)
        self._rest = rest

    def __call__(self, cursor: psycopg.Cursor[Any], rows: Sequence[Row], values: Sequence[Value]) -> int:
        """Write rows, one at least; see Writer."""
        written = 0
        for step in self._steps(cursor, rows, values):
            some = [rows[number] for number in step]
            statement = delete if some[0].is_gone else upsert
            cursor.execute(*statement(self._relation, self._key, some, self._of(step, some[0], values)))
            written += cursor.rowcount
        return written

    def read(self, cursor: psycopg.Cursor[Any], rows: Sequence[Row]) -> None:
        """Read rows and write none; see Writer."""
        read_only(cursor, self._relation, rows)

    def _of(self, step: Step, row: Row, values: Sequence[Value]) -> list[Value]:
        """Return the values beside some rows that are all as ``row`` is."""
        return [
            Value(value.field, [value.texts[number] for number in step])
            for value in values
            if value.field != self._rest or value.field.column.name in row.shape
        ]

    def _steps(self, cursor: psycopg.Cursor[Any], rows: Sequence[Row], values: Sequence[Value]) -> list[Step]:
        """Part the rows: those of one key come one after another; those of different keys go together, if alike."""
        steps: dict[tuple[object, ...], Step] = {}
        places = self._places(cursor, rows, values)
        for number, (place, row) in sorted(enumerate(zip(places, rows, strict=True)), key=lambda item: item[1][0]):
            steps.setdefault((place, row.is_gone, row.shape), []).append(number)
        return list(steps.values())

    def _places(self, cursor: psycopg.Cursor[Any], rows: Sequence[Row], values: Sequence[Value]) -> list[int]:
        """Return for each row how many before it have its key, as the server compares keys."""
        beside = {value.field.column.name for value in values}
        if not all(self._names <= row.shape | beside for row in rows):
            return list(range(len(rows)))  # a key that is a default is not known before: each by itself
        places = [0] * len(rows)
        if len(rows) == 1 and not rows[0].is_gone:
            return places
        cursor.execute(*repeated(self._relation, self._key, rows, values))  # a deletion alone might not look at the key
        if cursor.rowcount and not isinstance(cursor, psycopg.Cursor):
            return list(range(len(rows)))  # what stands in for a cursor gives no rows
        for number, place in cursor if cursor.rowcount else ():
            places[number] = place
        return places

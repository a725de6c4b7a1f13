"""The statements that write rows by their keys: update or insert, and delete.

In: a table, one of its keys, rows of one shape and of keys that are all different. Out: SQL and its parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model import Column, Key, Relation
from .insert import beside, into, objects, one_each, rows_from, verbatim
from .names import identifier
from .payload import fillable, insertable
from .rows import Row, Value

Statement = tuple[bytes, list[object]]


class Given(NamedTuple):
    """Rows as an item r of FROM: what each column is called there, and the parameters it takes."""

    columns: list[Column]
    names: dict[str, str]
    item: str
    parameters: list[object]


def repeated(relation: Relation, key: Key, rows: Sequence[Row], values: Sequence[Value]) -> Statement:
    """Return a query of the rows whose key others before them have: (its number from 0, how many those are)."""
    given = _given(relation, _names(key), rows, values)
    parts = ", ".join(f"{given.names[column.name]} {verbatim(column.collation)}" for column in key.columns)
    place = f"pg_catalog.row_number() OVER (PARTITION BY {parts} ORDER BY n)"
    text = (
        "SELECT n OPERATOR(pg_catalog.-) 1, place OPERATOR(pg_catalog.-) 1"
        f" FROM (SELECT n, {place} AS place FROM {given.item}) AS r WHERE place OPERATOR(pg_catalog.>) 1"
    )
    return text.encode(), given.parameters


def upsert(relation: Relation, key: Key, rows: Sequence[Row], values: Sequence[Value]) -> Statement:
    """Return the statement that updates the columns these rows name where their key is there, and else inserts them.

    Where the rows do not name all columns they are first looked for: INSERT would check the constraints of what they
    leave out before it notices that the key is there.
    """
    given = _given(relation, rows[0].shape.union(value.field.column.name for value in values), rows, values)
    keys = [given.names.get(name) for name in _names(key)]
    is_whole = all(column.name in given.names for column in insertable(relation))
    end = f"{conflict(key)} DO {_action(key, given)}"
    select = f"{into(relation, given.columns)} SELECT {', '.join(given.names.values())} FROM"
    if is_whole or None in keys:
        text = f"{select} {given.item} {end}"
    else:
        text = (
            f"WITH r AS (SELECT * FROM {given.item}), there AS ({_update(relation, key, given)})"
            f" {select} r WHERE NOT EXISTS (SELECT FROM there WHERE there.n OPERATOR(pg_catalog.=) r.n)"
            f" ORDER BY r.n {end}"
        )
    return text.encode(), given.parameters


def delete(relation: Relation, key: Key, rows: Sequence[Row], values: Sequence[Value]) -> Statement:
    """Return the statement that deletes the rows whose keys these name."""
    given = _given(relation, _names(key), rows, values)
    text = f"DELETE FROM {_only(relation)} AS target USING {given.item} WHERE {_match(key, given)}"
    return text.encode(), given.parameters


def conflict(key: Key) -> str:
    """Return the clause ON CONFLICT, up to what is to be done."""
    return "ON CONFLICT (" + verbatim(", ".join(identifier(column.name) for column in key.columns)) + ")"


def _names(key: Key) -> frozenset[str]:
    return frozenset(column.name for column in key.columns)


def _given(relation: Relation, wanted: frozenset[str], rows: Sequence[Row], values: Sequence[Value]) -> Given:
    """Read the columns ``wanted`` from what is beside the rows and, where it is not there, from their objects."""
    values = [value for value in values if value.field.column.name in wanted]
    own = [value.field.column for value in values]
    columns = [column for column in fillable(relation) if column.name in wanted and column not in own]
    sources = [*objects(columns, rows), *beside(values)]
    called = [f"r.{name}" for source in sources for name in source.names]
    names = dict(zip((column.name for column in (*columns, *own)), called, strict=True))
    sources = sources or [one_each(rows)]
    return Given([*columns, *own], names, rows_from(sources, numbered=True), [source.parameter for source in sources])


def _changes(key: Key, given: Given) -> list[Column]:
    keys = _names(key)
    return [column for column in given.columns if column.name not in keys]


def _action(key: Key, given: Given) -> str:
    names = [verbatim(identifier(column.name)) for column in _changes(key, given)]
    return f"UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in names)}" if names else "NOTHING"


def _update(relation: Relation, key: Key, given: Given) -> str:
    """Update what is there, and return the numbers of the rows that it was."""
    changes = [f"{verbatim(identifier(c.name))} = {given.names[c.name]}" for c in _changes(key, given)]
    if not changes:
        return f"SELECT r.n FROM r JOIN {_only(relation)} AS target ON {_match(key, given)}"
    target = f"UPDATE {_only(relation)} AS target SET {', '.join(changes)}"
    return f"{target} FROM r WHERE {_match(key, given)} RETURNING r.n"


def _match(key: Key, given: Given) -> str:
    return " AND ".join(
        f"target.{verbatim(identifier(column.name))} {verbatim(column.equals)} {given.names[column.name]}"
        for column in key.columns
    )


def _only(relation: Relation) -> str:
    """Name the table without those that inherit from it, as INSERT does; partitions are the table itself."""
    return ("ONLY " if relation.kind == "r" else "") + verbatim(relation.qualified)

"""The statement that writes JSON objects as rows.

In: a relation, rows, and values beside them. Out: INSERT … SELECT and its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import psycopg
from psycopg.types.json import Json

from ..model import Column, Relation
from .names import identifier, qualified, unbounded
from .payload import fillable
from .rows import Row, Shape, Value


class Insert:
    """Writes rows by INSERT. ``conflict`` is its clause ON CONFLICT, empty for none."""

    def __init__(self, relation: Relation, conflict: str = "") -> None:
        self._relation = relation
        self._conflict = conflict
        self._unwritable = frozenset(column.name for column in fillable(relation) if column.default is None)

    def __call__(self, cursor: psycopg.Cursor[Any], rows: Sequence[Row], values: Sequence[Value]) -> int:
        """Write rows by one statement, or more where some rows name columns whose default only the server can apply."""
        written = start = 0
        for _, run in groupby(rows, lambda row: row.shape & self._unwritable):
            some = list(run)
            stop = start + len(some)
            own = [Value(value.field, value.texts[start:stop]) for value in values]
            cursor.execute(*insert(self._relation, some, own, self._conflict))
            written += cursor.rowcount
            start = stop
        return written

    def read(self, cursor: psycopg.Cursor[Any], rows: Sequence[Row]) -> None:
        """Read rows and write none; see Writer."""
        read_only(cursor, self._relation, rows)


class Source(NamedTuple):
    """A function in FROM, with the one parameter it reads and the names of the columns it gives."""

    call: str
    parameter: object
    names: list[str]


def insert(
    relation: Relation, rows: Sequence[Row], values: Sequence[Value], conflict: str = ""
) -> tuple[bytes, list[object]]:
    """Return an INSERT of these rows, and its parameters.

    A column that no row names is left out, and so takes its default; where some name it, each row is told apart by the
    number of its shape. So the text of the statement depends on no more than which columns all rows name, and which
    only some.
    """
    numbers = {shape: str(number) for number, shape in enumerate(dict.fromkeys(row.shape for row in rows))}
    some, every = Shape().union(*numbers), Shape.intersection(*numbers)
    columns = [column for column in fillable(relation) if column.name in some]
    mixed = any(column.name not in every for column in columns)
    own = beside(values)
    sources = [*objects(columns, rows), *_shapes(numbers, rows, mixed), *own]
    sources = sources or [one_each(rows)]

    targets = [*columns, *(value.field.column for value in values)]
    selected = [_value(column, f"v{n}", column.name in every) for n, column in enumerate(columns)]
    selected += [source.names[0] for source in own]
    named_by = [
        _numbers(number for shape, number in numbers.items() if column.name in shape)
        for column in columns
        if column.name not in every
    ]
    parameters = [*named_by, *(source.parameter for source in sources)]
    text = f"{into(relation, targets)} SELECT {', '.join(selected)} FROM {rows_from(sources)}{conflict}"
    return text.encode(), parameters


def into(relation: Relation, targets: Sequence[Column]) -> str:
    """Return INSERT INTO with these columns."""
    return "INSERT INTO " + verbatim(relation.qualified + _list([identifier(column.name) for column in targets]))


def rows_from(sources: Sequence[Source], numbered: bool = False) -> str:
    """Return the sources side by side, as an item r for FROM; ``numbered`` adds a column n, counted from 1."""
    calls = ", ".join(source.call for source in sources)
    names = [name for source in sources for name in source.names] + ["n"] * numbered
    return f"ROWS FROM ({calls}){' WITH ORDINALITY' * numbered} AS r{_list(names)}"


def objects(columns: Sequence[Column], rows: Sequence[Row]) -> list[Source]:
    """Read columns v0, v1, … as the types below any domain, which would refuse the NULL of an absent field."""
    if not columns:
        return []
    definitions = ", ".join(f"{identifier(column.name)} {qualified(column.base)}" for column in columns)
    call = f"pg_catalog.json_to_recordset(CAST(%s AS pg_catalog.json)) AS ({verbatim(definitions)})"
    return [Source(call, _array_of(rows), [f"v{n}" for n in range(len(columns))])]


def beside(values: Sequence[Value]) -> list[Source]:
    """Read columns k0, k1, …: what no field of the objects gives."""
    return [_unnest(value.field.element, array(value.texts), f"k{n}") for n, value in enumerate(values)]


def one_each(rows: Sequence[Row]) -> Source:
    """Read a column x for as many rows as there are: of objects that name no column."""
    return Source("pg_catalog.generate_series(1, CAST(%s AS pg_catalog.int4))", len(rows), ["x"])


def read_only(cursor: psycopg.Cursor[Any], relation: Relation, rows: Sequence[Row]) -> None:
    """Have the server read the objects as a statement of them would, and write nothing. Raises psycopg.Error."""
    some = Shape().union(*(row.shape for row in rows))
    sources = objects([column for column in fillable(relation) if column.name in some], rows)
    if sources:
        cursor.execute(f"SELECT FROM {rows_from(sources)}".encode(), [source.parameter for source in sources])


def array(values: Iterable[str | None]) -> str:
    """Return values as an array constant; None is NULL."""
    return "{" + ",".join(map(_element, values)) + "}"


def verbatim(sql: str) -> str:
    """Keep psycopg from reading a % as the start of a placeholder."""
    return sql.replace("%", "%%")


def _array_of(rows: Sequence[Row]) -> Json:
    """Return the objects as a JSON array parameter, copied once."""
    parts = [b","] * (2 * len(rows) + 1)
    parts[0], parts[-1] = b"[", b"]"
    parts[1::2] = [row.object for row in rows]
    return Json(b"".join(parts), dumps=bytes)


def _unnest(element: str, parameter: str, name: str) -> Source:
    return Source(f"pg_catalog.unnest(CAST(%s AS {element}[]))", parameter, [name])


def _shapes(numbers: dict[Shape, str], rows: Sequence[Row], needed: bool) -> list[Source]:
    if not needed:
        return []
    return [_unnest("pg_catalog.int4", _numbers(numbers[row.shape] for row in rows), "s")]


def _value(column: Column, name: str, always: bool) -> str:
    """Return a column's value; INSERT's own assignment makes it the column's type, and checks its domain.

    The default is cast as the server would, but without the length: an explicit cast to it would cut what
    assignment refuses.
    """
    if always:
        return name
    default = verbatim(f"CAST({column.default} AS {unbounded(column.type)})")
    return f"CASE WHEN s OPERATOR(pg_catalog.=) ANY (CAST(%s AS pg_catalog.int4[])) THEN {name} ELSE {default} END"


def _list(items: Sequence[str]) -> str:
    return f" ({', '.join(items)})" if items else ""


def _numbers(numbers: Iterable[str]) -> str:
    return "{" + ",".join(numbers) + "}"


def _element(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

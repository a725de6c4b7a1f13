"""The statement that writes JSON objects as rows.

In: a relation, the objects, and which of its columns each names. Out: INSERT … SELECT and its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..model import Column, Relation
from .metadata import Field
from .names import identifier, qualified, unbounded
from .payload import fillable

Shape = frozenset[str]  # the columns of the relation that a row names


class _Source(NamedTuple):
    """A function in FROM, with the one parameter it reads and the names of the columns it gives."""

    call: str
    parameter: object
    names: list[str]


def insert(
    relation: Relation,
    fields: Sequence[tuple[Field, Iterable[str | None]]],
    shapes: Sequence[Shape],
    objects: object,
) -> tuple[bytes, list[object]]:
    """Return an INSERT of a row for each of ``shapes``, and its parameters.

    ``objects`` is a JSON array of the rows, ``fields`` the kafka_* columns with a value a row. A column that no row
    names is left out, and so takes its default; where some name it, each row is told apart by the number of its
    shape. So the text of the statement depends on no more than which columns all rows name, and which only some.
    """
    numbers = {shape: str(number) for number, shape in enumerate(dict.fromkeys(shapes))}
    some, every = Shape().union(*numbers), Shape.intersection(*numbers)
    columns = [column for column in fillable(relation) if column.name in some]
    own = [_unnest(field.element, array(values), f"k{n}") for n, (field, values) in enumerate(fields)]
    sources = [*_rows(columns, objects), *_shapes(numbers, shapes, needed=some != every), *own]
    sources = sources or [_Source("pg_catalog.generate_series(1, CAST(%s AS pg_catalog.int4))", len(shapes), ["n"])]

    targets = [*columns, *(field.column for field, _ in fields)]
    values = [_value(column, f"v{n}", column.name in every) for n, column in enumerate(columns)]
    values += [source.names[0] for source in own]
    named_by = [
        _numbers(number for shape, number in numbers.items() if column.name in shape)
        for column in columns
        if column.name not in every
    ]
    parameters = [*named_by, *(source.parameter for source in sources)]
    return _statement(relation, targets, values, sources), parameters


def reading(relation: Relation, shapes: Sequence[Shape], objects: object) -> tuple[bytes, list[object]]:
    """Return a SELECT that reads the objects as an INSERT would, writes nothing, and its parameters."""
    some = Shape().union(*shapes)
    sources = _rows([column for column in fillable(relation) if column.name in some], objects)
    calls = ", ".join(source.call for source in sources)
    return f"SELECT FROM ROWS FROM ({calls}) AS r".encode() if sources else b"SELECT", [s.parameter for s in sources]


def array(values: Iterable[str | None]) -> str:
    """Return values as an array constant; None is NULL."""
    return "{" + ",".join(map(_element, values)) + "}"


def _statement(
    relation: Relation, targets: Sequence[Column], values: Sequence[str], sources: Sequence[_Source]
) -> bytes:
    into = _verbatim(relation.qualified + _list([identifier(column.name) for column in targets]))
    calls = ", ".join(source.call for source in sources)
    names = _list([name for source in sources for name in source.names])
    return f"INSERT INTO {into} SELECT {', '.join(values)} FROM ROWS FROM ({calls}) AS r{names}".encode()


def _unnest(element: str, parameter: str, name: str) -> _Source:
    return _Source(f"pg_catalog.unnest(CAST(%s AS {element}[]))", parameter, [name])


def _rows(columns: Sequence[Column], objects: object) -> list[_Source]:
    """Read the columns as the types below any domain, which would refuse the NULL of an absent field."""
    if not columns:
        return []
    definitions = ", ".join(f"{identifier(column.name)} {qualified(column.base)}" for column in columns)
    call = f"pg_catalog.json_to_recordset(CAST(%s AS pg_catalog.json)) AS ({_verbatim(definitions)})"
    return [_Source(call, objects, [f"v{n}" for n in range(len(columns))])]


def _shapes(numbers: dict[Shape, str], shapes: Sequence[Shape], needed: bool) -> list[_Source]:
    if not needed:
        return []
    return [_unnest("pg_catalog.int4", _numbers(map(numbers.__getitem__, shapes)), "s")]


def _value(column: Column, name: str, always: bool) -> str:
    """Return a column's value; INSERT's own assignment makes it the column's type, and checks its domain.

    The default is cast as the server would, but without the length: an explicit cast to it would cut what
    assignment refuses.
    """
    if always:
        return name
    default = _verbatim(f"CAST({column.default} AS {unbounded(column.type)})")
    return f"CASE WHEN s OPERATOR(pg_catalog.=) ANY (CAST(%s AS pg_catalog.int4[])) THEN {name} ELSE {default} END"


def _verbatim(sql: str) -> str:
    """Keep psycopg from reading a % as the start of a placeholder."""
    return sql.replace("%", "%%")


def _list(items: Sequence[str]) -> str:
    return f" ({', '.join(items)})" if items else ""


def _numbers(numbers: Iterable[str]) -> str:
    return "{" + ",".join(numbers) + "}"


def _element(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

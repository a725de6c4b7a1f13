"""The statement that writes JSON objects as rows.

In: a relation, and which of its columns some and all of the rows name. Out: INSERT … SELECT, and how its
parameters are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model import Column, Relation
from .metadata import Field
from .names import identifier, qualified, unbounded
from .payload import fillable


def partial(relation: Relation, some: frozenset[str], every: frozenset[str]) -> list[str]:
    """Return the columns that some rows name and others do not: each needs a parameter that tells which."""
    return [column.name for column in fillable(relation) if column.name in some - every]


def statement(
    relation: Relation, fields: Sequence[Field], some: frozenset[str], every: frozenset[str]
) -> bytes:
    """Return an INSERT of rows of which ``some`` are the columns that any names, ``every`` those all name.

    A column that no row names is left out, and so takes its default. Its parameters, in order: the rows as a
    JSON array (not where no row names a column); for each of partial() an array of booleans; for each of
    ``fields`` an array of its values; and where that makes none, the number of rows.
    """
    columns = [column for column in fillable(relation) if column.name in some]
    mixed = partial(relation, some, every)
    sources = [_recordset(columns)] if columns else []
    sources += ["pg_catalog.unnest(CAST(%s AS pg_catalog.bool[]))" for _ in mixed]
    sources += [f"pg_catalog.unnest(CAST(%s AS {field.element}[]))" for field in fields]
    sources = sources or ["pg_catalog.generate_series(1, CAST(%s AS pg_catalog.int4))"]

    read = [f"v{n}" for n in range(len(columns))]
    given = {name: f"g{n}" for n, name in enumerate(mixed)}
    own = [f"k{n}" for n in range(len(fields))]
    values = map(_value, columns, read, [given.get(column.name) for column in columns])
    targets = [identifier(column.name) for column in (*columns, *(field.column for field in fields))]
    return (
        f"INSERT INTO {_verbatim(relation.qualified + _list(targets))} SELECT {', '.join([*values, *own])}"
        f" FROM ROWS FROM ({', '.join(sources)}) AS r{_list([*read, *given.values(), *own])}"
    ).encode()


def array(values: Iterable[str | None]) -> str:
    """Return values as an array constant; None is NULL."""
    return "{" + ",".join(map(_element, values)) + "}"


def flags(values: Iterable[bool]) -> str:
    """Return booleans as an array constant."""
    return "{" + ",".join("t" if value else "f" for value in values) + "}"


def _recordset(columns: Sequence[Column]) -> str:
    """Read the columns as the types below any domain, which would refuse the NULL of an absent field."""
    definitions = ", ".join(f"{identifier(column.name)} {qualified(column.base)}" for column in columns)
    return f"pg_catalog.json_to_recordset(CAST(%s AS pg_catalog.json)) AS ({_verbatim(definitions)})"


def _value(column: Column, name: str, given: str | None) -> str:
    """Return a column's value; INSERT's own assignment makes it the column's type, and checks its domain.

    The default is cast as the server would, but without the length: an explicit cast to it would cut what
    assignment refuses.
    """
    if given is None:
        return name
    default = _verbatim(f"CAST({column.default} AS {unbounded(column.type)})")
    return f"CASE WHEN {given} THEN {name} ELSE {default} END"


def _verbatim(sql: str) -> str:
    """Keep psycopg from reading a % as the start of a placeholder."""
    return sql.replace("%", "%%")


def _list(items: Sequence[str]) -> str:
    return f" ({', '.join(items)})" if items else ""


def _element(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

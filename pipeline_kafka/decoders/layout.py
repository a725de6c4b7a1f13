"""How objects are cut up for a relation: which of their values go into which columns.

In: a relation. Out: a decoder of objects that leaves their values as they stand, and where each column's is in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ..model import Column, Relation
from .payload import fillable

ABSENT = msgspec.Raw(b"")
NULL = msgspec.Raw(b"null")

_ODD = re.compile(r'[\\"\x00-\x1f]')  # what JSON escapes in a name, and msgspec does not take in one


class Source(NamedTuple):
    """Where a column's value is in an object that was decoded."""

    column: Column
    name: str

    def tokens(self, objects: Sequence[Any]) -> list[msgspec.Raw]:
        """Return the column's value in each object, as it stands there."""
        return list(map(attrgetter(self.name), objects))

    def is_named(self, objects: Sequence[Any]) -> bool:
        """Tell whether COPY must name the column, given objects of one shape.

        A domain is named in any case: COPY would not check it for a column that it is not given.
        """
        first = getattr(objects[0], self.name)
        if self.column.default != "NULL":
            return bool(first)
        is_domain = self.column.type != self.column.base
        return is_domain or first != NULL or self.tokens(objects).count(NULL) < len(objects)


class Layout(NamedTuple):
    """``decode`` an object, and look where ``sources`` say. A value that is not there is NULL.

    But for the ``defaulted``, where it is ABSENT, and the statement must leave the column out. ``nested`` are the
    columns whose type reads objects and arrays in its own way. ``blank`` is an object without a field.
    """

    decode: Callable[[bytes], Any]
    sources: tuple[Source, ...]
    defaulted: tuple[Source, ...]
    nested: tuple[Source, ...]
    blank: Any


@lru_cache(maxsize=1024)
def layout(relation: Relation, strict: bool) -> Layout | None:
    """Return the layout of a relation's objects; with ``strict`` it refuses fields that are no column.

    None where COPY cannot stand for INSERT, or a column has a name that JSON escapes.
    """
    if not relation.takes_copy or any(_ODD.search(column.name) for column in relation.columns):
        return None
    named = [(column, f"f{number}") for number, column in enumerate(relation.columns)]
    struct = msgspec.defstruct(
        "Object",
        [(name, msgspec.Raw, NULL if column.default == "NULL" else ABSENT) for column, name in named],
        rename={name: column.name for column, name in named},
        forbid_unknown_fields=strict,
        gc=False,
    )
    filled = fillable(relation)
    sources = tuple(Source(column, name) for column, name in named if column in filled)
    defaulted = tuple(source for source in sources if source.column.default != "NULL")
    nested = tuple(source for source in sources if source.column.kind == "nested")
    return Layout(msgspec.json.Decoder(struct).decode, sources, defaulted, nested, struct())

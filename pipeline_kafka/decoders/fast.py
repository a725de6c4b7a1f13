"""The fast way for JSON: whole batches become lines of COPY text, by operations on all of their bytes at once.

In: messages, each an object. Out: a CopyPayload, or None where the batch is not plainly the same as what the
reference makes of it (json.py, on the server).

Why it is the same: json_to_recordset() gives a scalar's text to the input function of the column's type (a string
without its quotes, anything else as it stands), and so does COPY. So no value is parsed here. msgspec checks the
syntax and cuts the fields out. Without a backslash in it, JSON needs no escape in COPY text: it has no control
characters within strings, and a quote is always a string's end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Message

from ..model import Column, Relation
from .copying import CopyPayload, pieces
from .framing import prefixes
from .metadata import Field
from .payload import Payload, fillable
from .text import frame, style

_ODD = re.compile(r'[\\"\x00-\x1f]')  # what JSON would escape in a name, and msgspec does not look up
_NULL = re.compile(rb"(?<=[\t\n])null(?=[\t\n])")
_EDGES = ((b'\t"', b"\t"), (b'\n"', b"\n"), (b'"\t', b"\t"), (b'"\n', b"\n"))
_ABSENT = (b"\t\t", b"\n\t", b"\t\n", b"\n\n")

Values = Callable[[Any], Sequence[msgspec.Raw]]


class Layout(NamedTuple):
    """How a relation's objects are cut up: ``decode`` one, then take the fields of ``columns``, in their order."""

    columns: tuple[Column, ...]
    names: tuple[str, ...]
    decode: Callable[[bytes], Any]


@lru_cache(maxsize=1024)
def layout(relation: Relation) -> Layout | None:
    """Return the layout of a relation's objects, None where a column's type reads JSON in its own way."""
    columns = tuple(fillable(relation))
    if (
        not relation.takes_copy
        or not columns
        or any(column.kind != "scalar" or _ODD.search(column.name) for column in columns)
    ):
        return None
    names = tuple(f"f{number}" for number in range(len(columns)))
    absent = msgspec.Raw(b"")
    struct = msgspec.defstruct(
        "Object",
        [(name, msgspec.Raw, absent) for name in names],
        rename=dict(zip(names, (column.name for column in columns), strict=True)),
        gc=False,
    )
    return Layout(columns, names, msgspec.json.Decoder(struct).decode)


def decode(relation: Relation, fields: Sequence[Field], messages: Sequence[Message]) -> Payload | None:
    """Return a payload of one line a message, in their order, or None."""
    known = layout(relation)
    if known is None or not messages:
        return None
    values = [message.value() or b"" for message in messages]
    columns: list[Column] = []
    lines: list[bytes] = []
    for piece in pieces(values):
        named, more = _cut(known, piece)
        if more is None or (columns and named != columns):
            return None
        columns = named
        lines += more
    way = style("\t", frame)
    if fields:
        lines = [prefix + line for prefix, line in zip(prefixes(fields, messages, way), lines, strict=True)]
    targets = [*(field.column for field in fields), *columns]
    return CopyPayload(relation, targets, way.options, messages, lines, way.skew)


def _cut(known: Layout, values: Sequence[bytes]) -> tuple[list[Column], list[bytes] | None]:
    if not b"".join(values).isascii() and not all(map(_is_utf8, values)):
        return [], None
    try:
        return _lines(known, list(map(known.decode, values)))
    except (msgspec.DecodeError, RecursionError):
        return [], None


def _lines(known: Layout, objects: list[Any]) -> tuple[list[Column], list[bytes] | None]:
    """Return the columns that all objects name, and a line each; no lines where the objects differ in that."""
    first = [bytes(value) for value in _getter(known.names)(objects[0])]
    named = [name for name, value in zip(known.names, first, strict=True) if value]
    columns = [column for column, value in zip(known.columns, first, strict=True) if value]
    rest = [name for name in known.names if name not in named]
    if not named or (rest and any(map(any, map(_getter(rest), objects)))):
        return columns, None
    text = b"\n" + b"\n".join(map(b"\t".join, map(_getter(named), objects))) + b"\n"
    if not _is_plain(text, len(objects), len(named)):
        return columns, None
    if b"null" in text:  # while a string still has its quotes, and so is no null
        text = _NULL.sub(rb"\\N", text)
    return columns, _unquoted(text)[1:-1].split(b"\n")


def _unquoted(text: bytes) -> bytes:
    """Take the quotes of strings away: all there are, or those at a field's edges where one may hold an object."""
    if b"{" not in text and b"[" not in text:
        return text.replace(b'"', b"")
    for edge, bare in _EDGES:
        text = text.replace(edge, bare)
    return text


def _is_plain(text: bytes, rows: int, columns: int) -> bool:
    """Tell whether fields are only told apart by tabs, and rows by line feeds, with none absent and none to escape.

    White space within a field's own object or array would be more of them.
    """
    return (
        b"\\" not in text
        and b"\r" not in text
        and text.count(b"\n") == rows + 1
        and text.count(b"\t") == rows * (columns - 1)
        and not any(absent in text for absent in _ABSENT)
    )


def _getter(names: Sequence[str]) -> Values:
    if len(names) != 1:
        return attrgetter(*names)
    one = attrgetter(names[0])
    return lambda value: (one(value),)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True

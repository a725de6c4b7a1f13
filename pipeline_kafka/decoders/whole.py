"""One column that takes each message whole: formats raw, and json for documents.

In: messages, and the column. Out: a CopyPayload or, where rows go by their keys, Rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import Message

from ..model import Column, Consumer, Relation
from . import keys, text, utf8
from .copying import escaped
from .framing import framed
from .metadata import Field
from .names import family
from .payload import Payload, Reject
from .rows import Reader, Row, Rows, Shape, read_all

TEXTS = ("text", "character varying")
# The type of the column, without its modifier -> the element type of an array of its values (see metadata.py).
ELEMENTS = dict.fromkeys(TEXTS, "pg_catalog.text") | {type: f"pg_catalog.{type}" for type in ("bytea", "json", "jsonb")}


def decode(
    consumer: Consumer,
    relation: Relation,
    fields: Sequence[Field],
    column: Column,
    messages: Sequence[Message],
    check: Callable[[bytes], None] = lambda value: None,
) -> tuple[Payload, list[Reject]]:
    """Write each message as one value of ``column``; ``check`` raises Refused for what cannot be one."""
    if consumer.on_conflict == "error":
        return framed(relation, fields, [column], messages, text.style("\t", _framer(column, check)))
    read = keys.with_tombstones(consumer, relation, _reader(column, check))
    done = read_all(read, messages)
    field = Field(column, ELEMENTS[family(column.base)], _hex if _is_bytea(column) else _text)
    return Rows(keys.writer(consumer, relation), [*fields, field], None, done.messages, done.rows), done.rejects


def _is_bytea(column: Column) -> bool:
    return family(column.base) == "bytea"


def _framer(column: Column, check: Callable[[bytes], None]) -> Callable[[bytes, bytes], bytes]:
    def frame(value: bytes, prefix: bytes) -> bytes:
        check(value)
        return prefix + (b"\\\\x" + value.hex().encode() if _is_bytea(column) else escaped(value))

    return frame


def _reader(column: Column, check: Callable[[bytes], None]) -> Reader:
    def read(message: Message) -> list[Row]:
        value = message.value() or b""
        check(value)
        if not _is_bytea(column):
            utf8.check(value, "the message", remedy="a column of type bytea takes any bytes")
        return [Row(b"{}", Shape())]

    return read


def _text(message: Message) -> str | None:
    value = message.value()
    return None if value is None else value.decode()


def _hex(message: Message) -> str | None:
    value = message.value()
    return None if value is None else "\\x" + value.hex()

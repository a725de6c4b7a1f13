"""The kafka_* columns: what a message says of itself, beside its value.

In: a relation, messages. Out: each column's values in the text form its type reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from ..message import headers_json, timestamp_type
from ..model import Column, Relation
from .names import family
from .payload import METADATA, Misfit, Refused, Reject, insertable
from .utf8 import check

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_JULIAN_DAY = 2440588

# The type of a column, without its modifier -> the element type of an array of its values that PostgreSQL
# converts to the column's by assignment, which refuses a value that is too long instead of cutting it.
_TEXTS = dict.fromkeys(("text", "character varying", "character", "bpchar"), "pg_catalog.text")
_NUMBERS = dict.fromkeys(("smallint", "integer", "bigint", "numeric"), "pg_catalog.int8")
_TIMES = {
    "timestamp with time zone": "pg_catalog.timestamptz",
    "timestamp without time zone": 'pg_catalog."timestamp"',
}
_JSONS = {"json": "pg_catalog.json", "jsonb": "pg_catalog.jsonb"}
_BYTES = {"bytea": "pg_catalog.bytea"}
_UUIDS = {"uuid": "pg_catalog.uuid"}

_USABLE = {
    "kafka_topic": _TEXTS,
    "kafka_partition": _NUMBERS | _TEXTS,
    "kafka_offset": _NUMBERS | _TEXTS,
    "kafka_timestamp": _TIMES | _NUMBERS | _TEXTS,
    "kafka_timestamp_type": _TEXTS,
    "kafka_key": _BYTES | _TEXTS | _JSONS | _NUMBERS | _UUIDS,
    "kafka_headers": _JSONS | _TEXTS,
}

Read = Callable[[Message], str | None]


class Field(NamedTuple):
    """One kafka_* column: its values' text form, and the element type of an array of them."""

    column: Column
    element: str
    read: Read


def fields(relation: Relation) -> list[Field]:
    """Return the kafka_* columns that a relation has, in its order.

    Raises Misfit for one whose type cannot hold what it is named for.
    """
    return [_field(column) for column in insertable(relation) if column.name in METADATA]


def texts(field: Field, messages: Iterable[Message]) -> list[str | None]:
    """Return a column's value for each message, as text that its type reads; None is NULL."""
    return list(map(field.read, messages))


def legible(fields: Iterable[Field], messages: list[Message]) -> tuple[list[Message], list[Reject]]:
    """Part the messages whose key is text where the column needs text from those whose key is not."""
    field = next((field for field in fields if field.column.name == "kafka_key"), None)
    if field is None or field.element in _BYTES.values():
        return messages, []
    kept, rejects = [], []
    for message in messages:
        try:
            _check_key(message.key(), field.column)
        except Refused as refused:
            rejects.append(Reject(message, refused.sqlstate, str(refused)))
        else:
            kept.append(message)
    return kept, rejects


def _field(column: Column) -> Field:
    type = family(column.base)
    usable = _USABLE[column.name]
    if type not in usable:
        raise Misfit(
            f'column "{column.name}" is of type {column.type}, which cannot hold what Kafka gives it:'
            f" make it one of {', '.join(usable)}"
        )
    return Field(column, usable[type], _reader(column.name, type))


def _reader(name: str, type: str) -> Read:
    if name == "kafka_timestamp":
        return _milliseconds if type in _NUMBERS else _timestamp
    if name == "kafka_key":
        return _key_hex if type in _BYTES else _key_text
    return {
        "kafka_topic": lambda message: message.topic(),
        "kafka_partition": lambda message: str(message.partition()),
        "kafka_offset": lambda message: str(message.offset()),
        "kafka_timestamp_type": timestamp_type,
        "kafka_headers": headers_json,
    }[name]


def _check_key(key: bytes | None, column: Column) -> None:
    if key is not None:
        what = f'the key, for column "{column.name}" of type {column.type},'
        check(key, what, remedy="make the column bytea")


def _key_hex(message: Message) -> str | None:
    key = message.key()
    return None if key is None else "\\x" + key.hex()


def _key_text(message: Message) -> str | None:
    key = message.key()
    return None if key is None else key.decode()


def _milliseconds(message: Message) -> str | None:
    kind, milliseconds = message.timestamp()
    # A record that carries -1 has no timestamp either (Kafka's RecordBatch.NO_TIMESTAMP).
    return None if kind == TIMESTAMP_NOT_AVAILABLE or milliseconds == -1 else str(milliseconds)


def _timestamp(message: Message) -> str | None:
    """Return a time in UTC, with the zone said: ``timestamptz`` reads it, ``timestamp`` passes it over."""
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or milliseconds == -1:
        return None
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}+00"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    """Return the date and time of day, ``seconds`` from 1970, in PostgreSQL's input form."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).isoformat(" ")[:19]
    except OverflowError:  # PostgreSQL's years go on to 294276: name the day by its Julian number
        days, rest = divmod(seconds, 86400)
        return f"J{days + _EPOCH_JULIAN_DAY} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"

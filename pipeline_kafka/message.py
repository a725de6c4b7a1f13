"""What every stage asks of a Kafka message beyond its value.

In: a confluent_kafka Message. Out: its timestamp and headers in PostgreSQL's terms.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from .model import TopicPartition

TYPES = {TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "append"}


def key_of(message: Message) -> TopicPartition:
    """Return the partition that a message is of."""
    return TopicPartition(message.topic() or "", message.partition() or 0)


def when(message: Message) -> datetime | None:
    """Return a message's timestamp; None where its topic keeps none, or it is no date (any int64 may be sent)."""
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else moment(milliseconds)


def moment(milliseconds: int) -> datetime | None:
    """Return the time so many milliseconds after 1970; None where that is no date."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def timestamp_type(message: Message) -> str | None:
    """Return who set a message's timestamp: 'create' its producer, 'append' the broker; None where there is none."""
    kind, milliseconds = message.timestamp()
    return None if milliseconds == -1 else TYPES.get(kind)


def headers_json(message: Message) -> str | None:
    """Return the headers as a JSON array of {"name", "value"}, in Kafka's order; None where there are none.

    A value that cannot be text in PostgreSQL (not UTF-8, or with a zero byte) is "base64" in place of "value".
    """
    headers: Any = message.headers()
    return msgspec.json.encode([_header(name, value) for name, value in headers]).decode() if headers else None


def _header(name: str, value: bytes | str | None) -> dict[str, str | None]:
    name = name.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if value is None or isinstance(value, str):
        return {"name": name, "value": value}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {"name": name, "base64": base64.b64encode(value).decode()}
    return {"name": name, "value": text}

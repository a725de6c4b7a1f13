"""What every stage asks of a Kafka message beyond its value.

In: a confluent_kafka Message. Out: its timestamp and headers in PostgreSQL's terms.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message


def when(message: Message) -> datetime | None:
    """Return a message's timestamp; None where its topic keeps none, or it is no date (any int64 may be sent)."""
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


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

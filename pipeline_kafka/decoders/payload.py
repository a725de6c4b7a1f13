"""What every decoder hands on, and the words they share.

In: nothing. Out: the types between decoding and loading, and which columns a message fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import psycopg
from confluent_kafka import Message

from ..model import Column, Relation

METADATA = (
    "kafka_topic",
    "kafka_partition",
    "kafka_offset",
    "kafka_timestamp",
    "kafka_timestamp_type",
    "kafka_key",
    "kafka_headers",
)


class Misfit(ValueError):
    """The relation cannot take this format at all, whatever is sent: the set-up is at fault, no message."""


class Refused(ValueError):
    """One message can never be loaded as it is. ``sqlstate`` is the code PostgreSQL uses for the like."""

    def __init__(self, sqlstate: str, error: str) -> None:
        super().__init__(error)
        self.sqlstate = sqlstate


class Reject(NamedTuple):
    """A message to set aside, with the SQLSTATE and the reason to keep beside it."""

    message: Message
    sqlstate: str
    error: str


class Payload(Protocol):
    """The messages of one consumer, decoded, in Kafka's order."""

    @property
    def messages(self) -> Sequence[Message]:
        """The messages themselves, for dead letters."""

    def __len__(self) -> int:
        """Return the number of messages (not of rows)."""

    def load(self, cursor: psycopg.Cursor[Any], start: int, stop: int) -> int:
        """Write messages[start:stop], in as many statements as it takes, and none where they hold no row.

        Return the rows written, as the server's command tags count them. Every name in a statement is
        qualified, so that it means the same under any search_path. Raises psycopg.Error, and then some of the
        statements may have been done: the caller undoes them.
        """

    def locate(self, error: psycopg.Error, start: int) -> int | None:
        """Return the index of the message that an error of the last load(cursor, start, …) points at.

        A hint: a value in the message can imitate the server's words. None where the error names no line.
        """

    def unreadable(self, cursor: psycopg.Cursor[Any], error: psycopg.Error, start: int, stop: int) -> bool:
        """Tell whether load(cursor, start, stop) failed with ``error`` because a value is none of its column's type.

        A type's input function may refuse one with any SQLSTATE: that of regclass with undefined_table, those of
        tsquery and jsonpath with syntax_error. The error must have been undone.
        """


class Decoded(NamedTuple):
    """A batch for one consumer. ``nulls`` counts messages without a value that are passed over."""

    payload: Payload
    rejects: list[Reject]
    nulls: int


def fillable(relation: Relation) -> list[Column]:
    """Return the columns that a message's value fills: neither the server's own nor kafka_* ones."""
    return [column for column in insertable(relation) if column.name not in METADATA]


def insertable(relation: Relation) -> list[Column]:
    """Return the columns that may be written at all."""
    return [column for column in relation.columns if not column.filled_by_server]

"""Messages set aside: whole, with why.

In: bad messages of a batch. Out: rows of pipeline_kafka.dead_letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from .decoders.payload import Reject
from .message import headers_json, when
from .model import Consumer

# A consumer that was sent back reads a bad message again: it stays one dead letter.
_INSERT = """
INSERT INTO pipeline_kafka.dead_letters
    (consumer_id, topic, partition, kafka_offset, key, value, headers, kafka_timestamp, sqlstate, error)
VALUES (%s, %s, %s, %s, %b, %b, %s::jsonb, %s, %s, %s)
ON CONFLICT (consumer_id, topic, partition, kafka_offset) DO UPDATE
SET key = EXCLUDED.key, value = EXCLUDED.value, headers = EXCLUDED.headers, kafka_timestamp = EXCLUDED.kafka_timestamp,
    sqlstate = EXCLUDED.sqlstate, error = EXCLUDED.error, failed_at = EXCLUDED.failed_at
"""


def set_aside(cursor: psycopg.Cursor[Any], consumer: Consumer, rejects: Iterable[Reject]) -> None:
    """Keep these messages for a person to look at, fix and retry."""
    cursor.executemany(_INSERT, [_row(consumer, reject) for reject in rejects])


def _row(consumer: Consumer, reject: Reject) -> tuple[object, ...]:
    message, sqlstate, error = reject
    return (
        consumer.id,
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        headers_json(message),
        when(message),
        sqlstate,
        error.replace("\0", "\N{REPLACEMENT CHARACTER}"),  # text in PostgreSQL holds no zero byte
    )

"""Messages set aside: whole, with why.

In: bad messages of a batch. Out: rows of pipeline_kafka.dead_letters, and how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import psycopg

from .message import headers_json, timestamp_type, when
from .model import Consumer, Relation
from .why import Bad, Why

Cursor = psycopg.Cursor[Any]

_MOST, _MOST_BYTES = 1_000, 16_000_000  # messages, and about as many bytes of them, in one statement
_EXPIRED_AT_ONCE = 10_000  # letters: what takes less than a second

# A consumer that was sent back reads a bad message again: it stays one dead letter, tried once more.
_INSERT = """
INSERT INTO pipeline_kafka.dead_letters AS d
    (consumer_id, topic, partition, kafka_offset, key, value, headers, kafka_timestamp, timestamp_type, sqlstate, error,
     detail, hint, context, column_name)
SELECT %s, topic, partition, kafka_offset, key, value, headers::jsonb, kafka_timestamp, timestamp_type, sqlstate, error,
       detail, hint, context, column_name
FROM unnest(%s::text[], %s::int[], %s::int8[], %b::bytea[], %b::bytea[], %s::text[], %s::timestamptz[], %s::text[],
            %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
         AS n(topic, partition, kafka_offset, key, value, headers, kafka_timestamp, timestamp_type, sqlstate, error,
              detail, hint, context, column_name)
ON CONFLICT (consumer_id, topic, partition, kafka_offset) DO UPDATE
SET key = EXCLUDED.key, value = EXCLUDED.value, headers = EXCLUDED.headers, kafka_timestamp = EXCLUDED.kafka_timestamp,
    timestamp_type = EXCLUDED.timestamp_type,
    sqlstate = EXCLUDED.sqlstate, error = EXCLUDED.error, detail = EXCLUDED.detail, hint = EXCLUDED.hint,
    context = EXCLUDED.context, column_name = EXCLUDED.column_name, tries = d.tries + 1, tried_at = EXCLUDED.tried_at
"""

# The lock keeps another worker from counting the same room as free.
_LOCK = "SELECT FROM pipeline_kafka.consumers WHERE id = %s FOR NO KEY UPDATE"
_COUNT = "SELECT count(*) FROM (SELECT FROM pipeline_kafka.dead_letters WHERE consumer_id = %s LIMIT %s) AS d"

# Of a constraint, or of a unique index that is none.
_COLUMNS = """
SELECT string_agg(a.attname, ', ' ORDER BY k.place) AS columns
FROM (SELECT conrelid AS relation, conkey AS keys FROM pg_catalog.pg_constraint
      WHERE conrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text)) AND conname = %(name)s
      UNION
      SELECT i.indrelid, i.indkey::int2[] FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
      WHERE i.indrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text)) AND c.relname = %(name)s)
         AS u, unnest(u.keys) WITH ORDINALITY AS k(number, place), pg_catalog.pg_attribute a
WHERE a.attrelid = u.relation AND a.attnum = k.number
"""


class Execute(Protocol):
    """What looking up a column needs of a cursor: psycopg's, and a session's own (session.py)."""

    def execute(self, query: Any, params: Any = None) -> Any:
        """Run a statement with %(name)s for each parameter."""


def set_aside(cursor: Cursor, consumer: Consumer, relation: Relation, bad: Sequence[Bad]) -> None:
    """Keep these messages for a person to look at, fix and retry."""
    names = column_names(cursor, relation, [why for _, why in bad])
    rows = [_row(message, why, name) for (message, why), name in zip(bad, names, strict=True)]
    for chunk in _chunks(rows):
        cursor.execute(_INSERT, [consumer.id, *map(list, zip(*chunk, strict=True))])


def held(cursor: Cursor, consumer: Consumer, most: int) -> int:
    """Return how many letters of a consumer there are, ``most`` at the most.

    No other worker adds to them before this transaction ends.
    """
    cursor.execute(_LOCK, (consumer.id,))
    row = cursor.execute(_COUNT, (consumer.id, most)).fetchone()
    assert row is not None
    return int(row[0])


def column_names(cursor: Execute, relation: Relation, whys: Iterable[Why]) -> Iterator[str | None]:
    """Return the column, or the columns, of the relation that each refusal is about, where that is known."""
    known: dict[tuple[str, str, str], str | None] = {}
    for why in whys:
        if why.column is None and why.constraint is not None and why.constraint not in known:
            known[why.constraint] = _columns_of(cursor, relation, *why.constraint)
        yield why.column or (why.constraint and known[why.constraint]) or None


def readable(text: str | None) -> str | None:
    """Return a text as PostgreSQL can hold it: without zero bytes."""
    return text and text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def expire(connection: psycopg.Connection[Any]) -> bool:
    """Delete letters that set_dead_letter_retention() no longer keeps, and tell whether that was all of them."""
    row = connection.execute("SELECT pipeline_kafka.expire_dead_letters(%s)", (_EXPIRED_AT_ONCE,)).fetchone()
    assert row is not None
    return int(row[0]) < _EXPIRED_AT_ONCE


def _columns_of(cursor: Execute, relation: Relation, schema: str, table: str, name: str) -> str | None:
    """Return the columns of a constraint; None where it is on another table, to which a trigger writes."""
    row = cursor.execute(_COLUMNS, {"schema": schema, "table": table, "name": name}).fetchone()
    columns: str | None = row[0]
    own = {column.name for column in relation.columns}
    return columns if columns and own.issuperset(columns.split(", ")) else None


def _row(message: Any, why: Why, column: str | None) -> tuple[Any, ...]:
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        headers_json(message),
        when(message),
        timestamp_type(message),
        why.sqlstate,
        *map(readable, (why.error, why.detail, why.hint, why.context)),
        column,
    )


def _chunks(rows: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    chunk: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row[3] or b"") + len(row[4] or b"")
        if len(chunk) == _MOST or size > _MOST_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk

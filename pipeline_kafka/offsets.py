"""Where each consumer stands, in PostgreSQL: the truth that Kafka's own committed offsets follow.

In: consumers and partitions. Out: rows of pipeline_kafka.offsets, moved by compare-and-set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from .errors import PositionLost
from .model import Consumer, Relation, TopicPartition


@dataclass(slots=True)
class Move:
    """One partition's step: from ``start`` (what the table must hold) to ``next``, over so many messages."""

    start: int
    next: int
    messages: int
    nulls: int = 0
    last_timestamp: datetime | None = None


# A consumer that was ended or moved meanwhile claims fewer rows than it asked for.
_CLAIM = """
UPDATE pipeline_kafka.offsets o
SET next_offset = n.next_offset, messages = o.messages + n.messages, nulls = o.nulls + n.nulls,
    last_timestamp = coalesce(n.last_timestamp, o.last_timestamp), committed_at = clock_timestamp()
FROM unnest(%(consumers)s::int[], %(relations)s::oid[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::int8[],
            %(nexts)s::int8[], %(messages)s::int8[], %(nulls)s::int8[], %(timestamps)s::timestamptz[])
         AS n(consumer, relation, topic, partition, start, next_offset, messages, nulls, last_timestamp),
     pipeline_kafka.consumers c
WHERE c.id = n.consumer AND c.relation = n.relation AND c.enabled AND o.consumer_id = c.id
  AND o.topic = n.topic AND o.partition = n.partition AND o.next_offset = n.start
"""

_VERSIONS = """
SELECT ARRAY(SELECT pipeline_kafka.relation_version(r.oid)
             FROM unnest(%s::oid[]) WITH ORDINALITY AS r(oid, n) ORDER BY n)
"""

_COUNT = """
UPDATE pipeline_kafka.offsets o
SET set_aside = o.set_aside + n.set_aside, skipped = o.skipped + n.skipped
FROM unnest(%s::text[], %s::int[], %s::int8[], %s::int8[]) AS n(topic, partition, set_aside, skipped)
WHERE o.consumer_id = %s AND o.topic = n.topic AND o.partition = n.partition
"""

_READ = """
SELECT o.consumer_id, o.topic, o.partition, o.next_offset
FROM pipeline_kafka.offsets o
JOIN unnest(%s::text[], %s::int[]) AS n(topic, partition) USING (topic, partition)
WHERE o.consumer_id = ANY (%s)
"""

_ADD = """
INSERT INTO pipeline_kafka.offsets (consumer_id, topic, partition, next_offset)
SELECT c.id, n.topic, n.partition, n.next_offset
FROM pipeline_kafka.consumers c, unnest(%s::text[], %s::int[], %s::int8[]) AS n(topic, partition, next_offset)
WHERE c.id = %s AND c.started
ON CONFLICT DO NOTHING
"""

# A row whose topic is not known yet takes the id; the answer is the rows that count in another topic of that name.
_MARK = """
WITH here AS (
    SELECT o.consumer_id, o.topic, o.partition, o.next_offset, o.topic_id, i.topic_id AS now
    FROM pipeline_kafka.offsets o
    JOIN unnest(%s::text[], %s::int[]) AS n(topic, partition) USING (topic, partition)
    JOIN unnest(%s::text[], %s::text[]) AS i(topic, topic_id) USING (topic)
    WHERE o.consumer_id = ANY (%s)),
marked AS (
    UPDATE pipeline_kafka.offsets o SET topic_id = h.now
    FROM here h
    WHERE h.topic_id IS NULL AND o.consumer_id = h.consumer_id AND o.topic = h.topic AND o.partition = h.partition)
SELECT consumer_id, topic, partition, next_offset FROM here WHERE topic_id <> now
"""

_LOSE = """
UPDATE pipeline_kafka.offsets SET next_offset = %s, lost = lost + %s, topic_id = NULL
WHERE consumer_id = %s AND topic = %s AND partition = %s AND next_offset = %s
"""

# Row locks live in the rows: xmax is the transaction that holds one, and pg_locks knows whose that is.
_EVICT = """
SELECT a.application_name, pg_terminate_backend(a.pid)
FROM pipeline_kafka.offsets o
JOIN unnest(%s::text[], %s::int[]) AS n(topic, partition) USING (topic, partition)
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = o.xmax AND l.mode = 'ExclusiveLock' AND l.granted
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE o.consumer_id = %s AND a.pid <> pg_backend_pid() AND a.usename = session_user AND a.wait_event = 'ClientRead'
  AND a.application_name ^@ 'pipeline_kafka loader '
LIMIT 1
"""

Claims = Sequence[tuple[Consumer, Mapping[TopicPartition, Move]]]
Standing = dict[tuple[int, TopicPartition], int]  # (consumer's id, partition) -> next offset


def claim(cursor: psycopg.Cursor[Any], claims: Claims) -> None:
    """Move consumers' offsets that stand where their moves start; the row locks keep others out till commit.

    Whether all did, check_claim() finds out.
    """
    steps = [(consumer, key, move) for consumer, moves in claims for key, move in moves.items()]
    cursor.execute(
        _CLAIM,
        {
            "consumers": [consumer.id for consumer, _, _ in steps],
            "relations": [consumer.relation for consumer, _, _ in steps],
            "topics": [key.topic for _, key, _ in steps],
            "partitions": [key.partition for _, key, _ in steps],
            "starts": [move.start for _, _, move in steps],
            "nexts": [move.next for _, _, move in steps],
            "messages": [move.messages for _, _, move in steps],
            "nulls": [move.nulls for _, _, move in steps],
            "timestamps": [move.last_timestamp for _, _, move in steps],
        },
    )


def check_claim(cursor: psycopg.Cursor[Any], claims: Claims) -> None:
    """Look at what the server answered to a claim.

    Raises PositionLost where an offset did not stand where its move starts.
    """
    wanted = sum(len(moves) for _, moves in claims)
    if cursor.rowcount != wanted:
        whose = f"{claims[0][0]}{' and others' if len(claims) > 1 else ''}"
        raise PositionLost(
            f"{whose}: offsets of {wanted - cursor.rowcount} of {wanted} partitions were moved by others"
        )


def evict(cursor: psycopg.Cursor[Any], consumer: Consumer, keys: Iterable[TopicPartition]) -> str | None:
    """End the session of a worker that holds one of these offsets and says nothing, and return its name; None if none.

    A worker that was stopped in the middle of a transaction, or whose network was, has lost its partitions to this one
    and keeps it from moving them. Nothing is lost by it: if it wakes up, it reads on from what is committed.
    """
    keys = list(keys)
    row = cursor.execute(_EVICT, ([k.topic for k in keys], [k.partition for k in keys], consumer.id)).fetchone()
    return row[0] if row else None


def ask_versions(cursor: psycopg.Cursor[Any], relations: Sequence[Relation]) -> None:
    """Ask how relations are defined now. What was written to them keeps them so until commit."""
    cursor.execute(_VERSIONS, ([relation.oid for relation in relations],))


def still(cursor: psycopg.Cursor[Any], relations: Sequence[Relation]) -> bool:
    """Tell from the answer whether they are defined as they were described."""
    row = cursor.fetchone()
    return row is not None and row[0] == [relation.version for relation in relations]


def count(cursor: psycopg.Cursor[Any], consumer: Consumer, bad: Mapping[TopicPartition, int], skipped: bool) -> None:
    """Add to a consumer's counts of messages set aside or, with ``skipped``, passed over."""
    numbers = list(bad.values())
    none = [0] * len(numbers)
    cursor.execute(
        _COUNT,
        (
            [key.topic for key in bad],
            [key.partition for key in bad],
            none if skipped else numbers,
            numbers if skipped else none,
            consumer.id,
        ),
    )


def read(
    connection: psycopg.Connection[Any], consumers: Iterable[int], partitions: Iterable[TopicPartition]
) -> Standing:
    """Return where these consumers (by id) stand in these partitions; a missing entry is a partition new to them."""
    keys = list(partitions)
    rows = connection.execute(_READ, ([k.topic for k in keys], [k.partition for k in keys], list(consumers)))
    return {(consumer, TopicPartition(topic, partition)): offset for consumer, topic, partition, offset in rows}


def add(connection: psycopg.Connection[Any], consumer: Consumer, starts: Mapping[TopicPartition, int]) -> None:
    """Store where a consumer starts in partitions that are new to it, unless somebody has already."""
    topics, partitions = [key.topic for key in starts], [key.partition for key in starts]
    connection.execute(_ADD, (topics, partitions, list(starts.values()), consumer.id))


def mark_topics(
    connection: psycopg.Connection[Any],
    consumers: Iterable[int],
    partitions: Iterable[TopicPartition],
    ids: Mapping[str, str],
) -> Standing:
    """Note which topic (by id) new offsets count in; return the places whose offsets count in another than now."""
    keys = list(partitions)
    names = ([k.topic for k in keys], [k.partition for k in keys], list(ids), list(ids.values()))
    rows = connection.execute(_MARK, (*names, list(consumers)))
    return {(consumer, TopicPartition(topic, partition)): offset for consumer, topic, partition, offset in rows}


def lose(connection: psycopg.Connection[Any], consumer: Consumer, key: TopicPartition, old: int, new: int) -> None:
    """Move a consumer over offsets that the broker no longer has, and count them. Raises PositionLost as claim()."""
    cursor = connection.execute(_LOSE, (new, max(new - old, 0), consumer.id, *key, old))
    if cursor.rowcount != 1:
        raise PositionLost(f"{consumer}: the offset of {key} was moved by others")


def begin(connection: psycopg.Connection[Any], consumer: Consumer, starts: Mapping[TopicPartition, int]) -> None:
    """Store where a new consumer starts, once for all workers: the first one's answer counts."""
    with connection.transaction():
        cursor = connection.execute(
            "UPDATE pipeline_kafka.consumers SET started = true WHERE id = %s AND NOT started", (consumer.id,)
        )
        if cursor.rowcount == 1:
            add(connection, consumer, starts)

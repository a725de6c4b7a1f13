"""Where reading starts: a new consumer, a new partition, and one whose offset the broker no longer has.

In: what Kafka says of its partitions. Out: rows of pipeline_kafka.offsets, and routes that stand on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from . import consumer_state, offsets
from .log import logger
from .model import Consumer, TopicPartition
from .routes import Routes, reads

BEGINNING, END = -2, -1  # start_offset's two names, as in pipeline_kafka 1.0
KAFKA_WAIT = 10.0  # seconds Kafka may take to answer

Connection = psycopg.Connection[Any]


def begin(connection: Connection, admin: AdminClient, consumers: Iterable[Consumer]) -> None:
    """Resolve what each new consumer's start means in every partition there is, and store it. Raises KafkaException.

    A partition that appears later, with its topic or in it, starts at its beginning: see stand().
    """
    new = [consumer for consumer in consumers if not consumer.started]
    if not new:
        return
    topics = admin.list_topics(timeout=KAFKA_WAIT).topics
    for consumer in new:
        names = [name for name, topic in topics.items() if reads(consumer, name) and topic.error is None]
        keys = [TopicPartition(name, number) for name in names for number in topics[name].partitions]
        offsets.begin(connection, consumer, resolve(admin, keys, consumer.start_offset))


def stand(connection: Connection, admin: AdminClient, routes: Routes, keys: list[TopicPartition]) -> list[Consumer]:
    """Let the routes stand where the database says; in partitions new to a consumer, at the beginning.

    Offsets counted in a topic that was deleted and made again since mean nothing now: on_offset_lost decides what to
    do. Returns the consumers that stopped.
    """
    if not keys:
        return []
    routes.forget(keys)
    ids = topic_ids(admin, {key.topic for key in keys})
    standing = offsets.read(connection, routes.consumers, keys)
    missing = [(c, key) for key in keys for c in routes.of_topic(key.topic) if (c.id, key) not in standing]
    if missing:
        starts = earliest(admin, sorted({key for _, key in missing}))
        for consumer in {c.id: c for c, _ in missing}.values():
            offsets.add(connection, consumer, {key: starts[key] for c, key in missing if c is consumer})
        standing = offsets.read(connection, routes.consumers, keys)
    routes.standing.update(standing)
    routes.inherit(consumer_state.failing(connection, routes.consumers))
    foreign = offsets.mark_topics(connection, routes.consumers, keys, ids)
    said = "topic {key.topic} was deleted and made again: {key} holds offsets {low} to {high} now"
    return _lose(connection, admin, routes, foreign, said)


def lose(connection: Connection, admin: AdminClient, routes: Routes, keys: list[TopicPartition]) -> list[Consumer]:
    """Do what on_offset_lost says for consumers whose offsets the broker does not have; return those that stopped."""
    low, high = earliest(admin, keys), latest(admin, keys)
    places = [(c.id, key) for key in keys for c in routes.of_topic(key.topic)]
    outside = {p: routes.standing[p] for p in places if p in routes.standing and not _within(low, high, p, routes)}
    said = "{key} holds offsets {low} to {high}, and {old} was to be read next"
    return _lose(connection, admin, routes, outside, said)


def _within(
    low: dict[TopicPartition, int], high: dict[TopicPartition, int], place: tuple[int, TopicPartition], routes: Routes
) -> bool:
    return low[place[1]] <= routes.standing[place] <= high[place[1]]


def _lose(
    connection: Connection, admin: AdminClient, routes: Routes, places: offsets.Standing, said: str
) -> list[Consumer]:
    keys = sorted({key for _, key in places})
    low, high = earliest(admin, keys), latest(admin, keys)
    stopped = {}
    for (consumer_id, key), old in places.items():
        consumer = routes.consumers[consumer_id]
        why = said.format(key=key, low=low[key], high=high[key], old=old)
        if consumer.on_offset_lost == "stop":
            _stop(connection, consumer, why)
            stopped[consumer_id] = consumer
            continue
        new = low[key] if consumer.on_offset_lost == "earliest" else high[key]
        offsets.lose(connection, consumer, key, old, new)
        routes.standing[consumer_id, key] = new
        logger.warning("consumer %s goes on at %d: %s", consumer, new, why)
    return list(stopped.values())


def _stop(connection: Connection, consumer: Consumer, why: str) -> None:
    hint = "consume_begin() with a start_offset goes on from there"
    with connection.cursor() as cursor:
        consumer_state.stop(cursor, consumer, "22003", f"{why}; {hint}")


def topic_ids(admin: AdminClient, topics: Iterable[str]) -> dict[str, str]:
    """Return the id of each topic: another one under the same name has another. Unknown ones are left out."""
    futures = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=KAFKA_WAIT)
    ids = {}
    for name, future in futures.items():
        try:
            ids[name] = str(future.result().topic_id)
        except KafkaException as error:
            logger.debug("topic %s is not described: %s", name, error)
    return ids


def resolve(admin: AdminClient, keys: list[TopicPartition], wanted: int | None) -> dict[TopicPartition, int]:
    """Return the offset that ``wanted`` (BEGINNING, END, None for END, or an offset) stands for in each partition.

    An offset outside a partition's watermarks is taken as the nearer of them. Raises KafkaException.
    """
    if wanted == BEGINNING:
        return earliest(admin, keys)
    if wanted is None or wanted == END:
        return latest(admin, keys)
    low, high = earliest(admin, keys), latest(admin, keys)
    return {key: max(low[key], min(wanted, high[key])) for key in keys}


def earliest(admin: AdminClient, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the first offset that each partition still has. Raises KafkaException."""
    return _list_offsets(admin, keys, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def latest(admin: AdminClient, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offset after the last message that a read_committed reader may see. Raises KafkaException."""
    return _list_offsets(admin, keys, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def _list_offsets(admin: AdminClient, keys: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
    if not keys:
        return {}
    request = {KafkaPartition(*key): spec for key in keys}
    futures = admin.list_offsets(request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=KAFKA_WAIT)
    return {TopicPartition(p.topic, p.partition): future.result().offset for p, future in futures.items()}

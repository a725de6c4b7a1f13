"""Where reading starts: a new consumer, a new partition, and one whose offset the broker no longer has.

In: what Kafka says of its partitions. Out: rows of pipeline_kafka.offsets, and routes that stand on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from threading import Event
from typing import Any

import psycopg
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._topic import TopicDescription

from . import consumer_state, offsets
from .hearing import ping
from .log import logger
from .model import Consumer, TopicPartition
from .routes import Routes

BEGINNING = -2  # start_offset's name for it, as in pipeline_kafka 1.0; -1 and NULL are the end
KAFKA_WAIT = 10.0  # seconds Kafka may take to answer
_TURN = 2.0  # seconds it may take to answer that it is there
WATCH_EVERY = 5.0  # seconds between looks whether topics are still the same

_ELSEWHERE = "consume_begin() with a start_offset goes on from there, as it does after seek()"
_OTHERWISE = "another replay() of what there is, or with on_offset_lost => 'earliest', passes over them"

Connection = psycopg.Connection[Any]


def begin(connection: Connection, admin: AdminClient, consumers: Iterable[Consumer], called: Event) -> None:
    """Resolve what each new consumer's start means in every partition there is, and store it. Raises KafkaException.

    A partition that appears later, with its topic or in it, starts at its beginning: see stand(). ``called`` ends the
    waiting for a Kafka that is not there.
    """
    new = [consumer for consumer in consumers if not consumer.started]
    if not new:
        return
    _reach(admin, called)
    topics = admin.list_topics(timeout=KAFKA_WAIT).topics
    for consumer in new:
        names = [name for name, topic in topics.items() if consumer.reads(name) and topic.error is None]
        keys = [TopicPartition(name, number) for name in names for number in topics[name].partitions]
        offsets.begin(connection, consumer, resolve(admin, keys, consumer))


def _reach(admin: AdminClient, called: Event) -> None:
    """Wait for Kafka to answer at all, in turns; a call for its topics would wait on, wherever Kafka is by then."""
    end = time.monotonic() + KAFKA_WAIT
    while True:
        try:
            ping(admin, _TURN)
        except KafkaException:
            if called.wait(0.1) or time.monotonic() >= end:
                raise
        else:
            return


def stand(connection: Connection, admin: AdminClient, routes: Routes, keys: list[TopicPartition]) -> list[Consumer]:
    """Let the routes stand where the database says; in partitions new to a consumer, at the beginning.

    Offsets counted in a topic that was deleted and made again since mean nothing now: on_offset_lost decides what to
    do. Returns the consumers that stopped.
    """
    if not keys:
        return []
    routes.forget(keys)
    ids = topic_ids(admin, {key.topic for key in keys})
    routes.topic_ids.update(ids)
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
    hint = _OTHERWISE if consumer.replay else _ELSEWHERE
    with connection.cursor() as cursor:
        consumer_state.stop(cursor, consumer, "22003", f"{why}; {hint}")


def topic_ids(admin: AdminClient, topics: Iterable[str]) -> dict[str, str]:
    """Return the id of each topic: another one under the same name has another. Unknown ones are left out."""
    return _ids(admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=KAFKA_WAIT))


def _ids(futures: Mapping[str, Future[TopicDescription]]) -> dict[str, str]:
    ids = {}
    for name, future in futures.items():
        try:
            ids[name] = str(future.result().topic_id)
        except KafkaException as error:
            logger.debug("topic %s is not described: %s", name, error)
    return ids


class TopicWatch:
    """Notices that a topic was deleted and made again while it is read, without waiting for Kafka's answers.

    librdkafka goes on in the new topic as if it were the old one.
    """

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._ask_at = 0.0
        self._futures: Mapping[str, Future[TopicDescription]] = {}

    def others(self, routes: Routes) -> set[str]:
        """Return, now and then, the topics that are others than those of that name that the routes have stood in."""
        if self._futures and all(future.done() for future in self._futures.values()):
            futures, self._futures = self._futures, {}
            there = {name: id for name, id in _ids(futures).items() if routes.topic_ids.get(name, id) != id}
            routes.topic_ids.update(there)
            return set(there)
        if not self._futures and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + WATCH_EVERY
            if names := [name for name in sorted(routes.topic_ids) if routes.of_topic(name)]:
                self._futures = self._admin.describe_topics(TopicCollection(names), request_timeout=KAFKA_WAIT)
        return set()


def resolve(admin: AdminClient, keys: list[TopicPartition], consumer: Consumer) -> dict[TopicPartition, int]:
    """Return the offset that a consumer's start stands for in each partition. Raises KafkaException.

    That is start_offset, the first message of start_timestamp or later, or start_last offsets before the end. What lies
    outside a partition's watermarks is taken as the nearer of them, and a time after its last message as its end.
    """
    wanted = consumer.start_offset
    if wanted == BEGINNING:
        return earliest(admin, keys)
    low, high = earliest(admin, keys), latest(admin, keys)
    if consumer.start_timestamp is not None:
        found = at(admin, keys, consumer.start_timestamp)
    elif consumer.start_last is not None:
        found = {key: high[key] - consumer.start_last for key in keys}
    elif wanted is None or wanted < 0:
        found = high
    else:
        found = dict.fromkeys(keys, wanted)
    return {key: max(low[key], min(found.get(key, high[key]), high[key])) for key in keys}


def at(admin: AdminClient, keys: list[TopicPartition], milliseconds: int) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first message of this time (since 1970) or later; left out if none."""
    found = _list_offsets(admin, keys, OffsetSpec.for_timestamp(max(0, milliseconds)))
    return {key: offset for key, offset in found.items() if offset >= 0}


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

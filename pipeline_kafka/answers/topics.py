"""Topics, their partitions and watermarks.

In: a request. Out: rows of topics(), topic_partitions() and topic_watermarks().
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from .client import Kafka
from .protocol import Request, Unanswered

Row = dict[str, Any]

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def topics(request: Request) -> Iterator[Row]:
    """Yield each topic: name, number of partitions, and replicas of each."""
    for name, topic in sorted(Kafka(request).metadata().topics.items()):
        replicas = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
        yield {"topic": name, "partitions": len(topic.partitions), "replicas": replicas}


def topic_partitions(request: Request, topic: str) -> Iterator[Row]:
    """Yield each partition of a topic: leader, replicas and those in sync, by broker id."""
    for number, partition in sorted(Kafka(request).metadata(topic).topics[topic].partitions.items()):
        leader = None if partition.leader < 0 else partition.leader
        yield {"partition": number, "leader": leader, "replicas": partition.replicas, "in_sync": partition.isrs}


def topic_watermarks(request: Request, topic: str, partition: int | None) -> Iterator[Row]:
    """Yield each partition of a topic, or one: its first offset, and the one behind its last message."""
    kafka = Kafka(request)
    numbers = sorted(kafka.metadata(topic).topics[topic].partitions)
    if partition is not None:
        if partition not in numbers:
            raise Unanswered("42704", f'topic "{topic}" has no partition {partition}', f"It has {len(numbers)}.")
        numbers = [partition]
    wanted = [TopicPartition(topic, number) for number in numbers]
    low, high = (offsets(kafka, wanted, spec) for spec in (EARLIEST, LATEST))
    for number in numbers:
        yield {"partition": number, "low": low[number], "high": high[number]}


def offsets(kafka: Kafka, wanted: list[TopicPartition], spec: OffsetSpec) -> dict[int, int]:
    """Return an offset of each of these partitions of one topic, by its number."""
    left = kafka.left()
    futures = kafka.admin().list_offsets(dict.fromkeys(wanted, spec), request_timeout=left)
    return {key.partition: kafka.wait(future, str(key.topic)).offset for key, future in futures.items()}

"""Topics, their partitions and watermarks.

In: a request. Out: rows of topics(), topic_partitions() and topic_watermarks().
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .client import EARLIEST, LATEST, Kafka, no_partition
from .protocol import Request

Row = dict[str, Any]


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
            raise no_partition(topic, partition, len(numbers))
        numbers = [partition]
    places = [(topic, number) for number in numbers]
    low, high = (kafka.offsets(places, spec) for spec in (EARLIEST, LATEST))
    for place in places:
        yield {"partition": place[1], "low": low[place].offset, "high": high[place].offset}

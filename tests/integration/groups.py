"""Consumer groups of others, for tests that look at them or take over from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until


@contextmanager
def member(kafka: Kafka, group: str, topic: str, **config: Any) -> Iterator[Consumer]:
    """Somebody else's consumer, with all partitions of a topic; ``config`` has properties with _ for a dot."""
    properties = {name.replace("_", "."): value for name, value in config.items()}
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False, **properties}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        wait_until(lambda: (consumer.poll(0.1) and None) or consumer.assignment(), f"{group} has partitions of {topic}")
        yield consumer
    finally:
        consumer.close()


def commit(kafka: Kafka, group: str, topic: str, offsets: dict[int, int], metadata: str = "") -> None:
    """Commit offsets, by partition, for a group without members."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition, offset, metadata) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def old_offsets(group: str, topic: str, offsets: dict[int, int]) -> dict[str, str]:
    """The nodes of a group of old, below the session's chroot, for ZooKeeper.write()."""
    return {f"/kafka/consumers/{group}/offsets/{topic}/{partition}": str(o) for partition, o in offsets.items()}

"""What Kafka has been told of how far the group is, so that it is told news only, and what it refused again.

In: offsets, and librdkafka's answers to commits. Out: what to commit.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from .model import TopicPartition


class Told:
    """The offsets that were sent to the group's coordinator, but for those that it did not take."""

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}

    def news(self, offsets: Mapping[TopicPartition, int]) -> list[KafkaPartition]:
        """Return those of these offsets that Kafka does not know yet, and take them as told."""
        news = {key: at for key, at in offsets.items() if self._offsets.get(key) != at}
        self._offsets.update(news)
        return [KafkaPartition(*key, at) for key, at in news.items()]

    def forget(self, key: TopicPartition) -> None:
        """The partition goes to another member, which may tell something else of it."""
        self._offsets.pop(key, None)

    def answered(self, error: KafkaError | None, partitions: list[KafkaPartition]) -> None:
        """Take librdkafka's on_commit: what was not taken, as in the midst of a rebalance, is news again."""
        for partition in partitions:
            if error is not None or partition.error is not None:
                self.forget(TopicPartition(partition.topic, partition.partition))

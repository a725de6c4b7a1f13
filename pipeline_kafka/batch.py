"""What is taken from Kafka at a time.

In: nothing. Out: the type between the reader and the routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message

from .model import TopicPartition


@dataclass(slots=True)
class Batch:
    """Messages by partition, and for each partition the offset it was read from and the one that comes after them.

    ``next`` may lie past the last message, or be there without one: transaction markers and compaction leave gaps,
    which only the end-of-partition event shows. ``lost`` are partitions whose offset the broker no longer has,
    ``refused`` topics that cannot be read, each with Kafka's reason.
    """

    messages: dict[TopicPartition, list[Message]] = field(default_factory=dict)
    start: dict[TopicPartition, int] = field(default_factory=dict)
    next: dict[TopicPartition, int] = field(default_factory=dict)
    lost: list[TopicPartition] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    count: int = 0
    bytes: int = 0

    def has_room(self, messages: int, bytes: int) -> bool:
        """Tell whether fewer than so many messages and bytes are in it."""
        return self.count < messages and self.bytes < bytes

    def cut(self, ends: Mapping[TopicPartition, int]) -> None:
        """Drop what lies at or behind the end of its partition; all of a partition that has none."""
        for key, following in self.next.items():
            end = ends.get(key, 0)
            self.messages[key] = [message for message in self.messages.get(key, []) if (message.offset() or 0) < end]
            self.next[key] = max(min(following, end), self.start[key])

"""Who reads what, and from where: the plan of one group's worker, in memory, thrown away with it.

In: consumers from the catalog, their offsets, their failures. Out: each consumer's part of a batch, and the offset
each partition must be read from next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message

from .batch import Batch
from .errors import PositionLost
from .message import key_of, when
from .model import Consumer, TopicPartition
from .offsets import Move, Standing
from .work import Failure

FAR_BEHIND = 50_000  # messages that a consumer may be behind the others before it is read by itself


@dataclass(slots=True)
class Rest:
    """A failing consumer's pause: failures in a row, and the time.monotonic() at which it is tried again.

    On trial it is read for again, until it fails or goes on.
    """

    failures: int
    until: float
    on_trial: bool = False


@dataclass(slots=True)
class Part:
    """One consumer's part of a batch: its messages, and how they move its offsets."""

    messages: list[Message] = field(default_factory=list)
    moves: dict[TopicPartition, Move] = field(default_factory=dict)

    def count_nulls(self) -> None:
        """Note in the moves how many messages have no value."""
        for message in self.messages:
            if message.value() is None:
                self.moves[key_of(message)].nulls += 1


class Routes:
    """The consumers of one group. ``standing`` runs ahead of the database by the batch that is being loaded."""

    def __init__(self) -> None:
        self.consumers: dict[int, Consumer] = {}
        self.standing: Standing = {}
        self.topic_ids: dict[str, str] = {}  # of the topics that ``standing`` counts in
        self.apart: dict[int, bool] = {}  # consumers' ids read in lanes of their own -> for good, being slow
        self._rests: dict[int, Rest] = {}
        self._by_topic: dict[str, list[Consumer]] = {}  # what was asked for already
        self._named: dict[str, list[Consumer]] = {}
        self._patterns: list[Consumer] = []

    def replace(self, consumers: Iterable[Consumer]) -> set[int]:
        """Take up a new set of consumers, and return those (by id) that are as they were.

        One that was changed is tried at once, whatever its failures.
        """
        known, self.consumers = self.consumers, {consumer.id: consumer for consumer in consumers}
        same = {i for i, consumer in self.consumers.items() if known.get(i) == consumer}
        self._rests = {i: rest for i, rest in self._rests.items() if i in same}
        self.apart = {i: slow for i, slow in self.apart.items() if i in same}
        self._by_topic, self._named = {}, {}
        for consumer in self.consumers.values():
            self._named.setdefault(consumer.topic, []).append(consumer)
        self._patterns = [consumer for consumer in self.consumers.values() if consumer.topic.startswith("^")]
        return same

    def of_topic(self, topic: str) -> list[Consumer]:
        """Return the consumers that a topic's messages go to."""
        if topic not in self._by_topic:
            self._by_topic[topic] = [c for c in (*self._named.get(topic, ()), *self._patterns) if c.reads(topic)]
        return self._by_topic[topic]

    def subscription(self) -> set[str]:
        """Return the topics and patterns to ask the group for."""
        return {consumer.topic for consumer in self.consumers.values()}

    def bounds(self) -> tuple[int, int]:
        """Return the batch size (messages) and maximum (bytes) that suit every consumer."""
        consumers = self.consumers.values()
        return min(c.batchsize for c in consumers), min(c.maxbytes for c in consumers)

    def timeout(self) -> float:
        """Return how many seconds a message may wait for others."""
        return min(consumer.timeout for consumer in self.consumers.values()) / 1000

    # Failing and going on -----------------------------------------------------------------------------------

    def failures(self, consumer: Consumer) -> int:
        """Return how often in a row a consumer has failed."""
        rest = self._rests.get(consumer.id)
        return rest.failures if rest else 0

    def inherit(self, failures: Mapping[int, int]) -> None:
        """Put on trial consumers (by id) that others left failing: a worker that is gone, or the group of a lane.

        They are tried at once, and their going on is noted.
        """
        for consumer_id, count in failures.items():
            self._rests.setdefault(consumer_id, Rest(count, 0.0, on_trial=True))

    def settle(self, consumer: Consumer, failure: Failure | None) -> None:
        """Take up how a consumer's part of a batch ended."""
        if failure is None:
            self._rests.pop(consumer.id, None)
            return
        until = math.inf if failure.retry_in is None else time.monotonic() + failure.retry_in
        self._rests[consumer.id] = Rest(self.failures(consumer) + failure.counts, until)

    def retreat(self, consumer: Consumer, moves: Mapping[TopicPartition, Move]) -> None:
        """Let a consumer stand where it stood before these moves, which were not made."""
        for key, move in moves.items():
            if (consumer.id, key) in self.standing:
                self.standing[consumer.id, key] = min(self.standing[consumer.id, key], move.start)

    def advance(self, consumer_id: int, reached: Mapping[TopicPartition, int]) -> None:
        """Let a consumer that is set apart stand where its lane has come to."""
        known = {(consumer_id, key): offset for key, offset in reached.items()}
        self.standing.update({place: offset for place, offset in known.items() if place in self.standing})

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Drop where consumers stand in these partitions."""
        going = set(keys)
        self.standing = {place: offset for place, offset in self.standing.items() if place[1] not in going}

    def wake(self) -> bool:
        """Put on trial the consumers whose pause is over; tell whether there were any."""
        now = time.monotonic()
        due = [rest for rest in self._rests.values() if not rest.on_trial and rest.until <= now]
        for rest in due:
            rest.on_trial = True
        return bool(due)

    def _awake(self, consumer: Consumer) -> bool:
        rest = self._rests.get(consumer.id)
        return (rest is None or rest.on_trial) and consumer.id not in self.apart

    def part_stragglers(self, keys: Iterable[TopicPartition], room: int) -> bool:
        """Set apart up to ``room`` consumers that are far behind the others, and tell whether there were any."""
        behind: dict[int, int] = {}
        for key in keys:
            awake = [c for c in self.of_topic(key.topic) if self._awake(c) and (c.id, key) in self.standing]
            front = max((self.standing[c.id, key] for c in awake), default=0)
            for consumer in awake:
                gap = front - self.standing[consumer.id, key]
                behind[consumer.id] = behind.get(consumer.id, 0) + gap
        far = sorted((i for i, gap in behind.items() if gap > FAR_BEHIND), key=lambda i: -behind[i])[:room]
        self.apart.update(dict.fromkeys(far, False))
        return bool(far)

    # Reading ------------------------------------------------------------------------------------------------

    def wanted(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where to read each partition from: the least offset of those it goes to; left out if there is none."""
        return self._least(keys, resting=False)

    def reached(
        self, keys: Iterable[TopicPartition], loading: Iterable[Mapping[TopicPartition, Move]]
    ) -> dict[TopicPartition, int]:
        """Return the offset that all consumers of each partition have passed but for these moves: Kafka is told it."""
        least = self._least(keys, resting=True)
        for moves in loading:
            for key in moves.keys() & least.keys():
                least[key] = min(least[key], moves[key].start)
        return least

    def _least(self, keys: Iterable[TopicPartition], resting: bool) -> dict[TopicPartition, int]:
        least = {}
        for key in keys:
            offsets = [
                self.standing[c.id, key]
                for c in self.of_topic(key.topic)
                if (c.id, key) in self.standing and (resting or self._awake(c))
            ]
            if offsets:
                least[key] = min(offsets)
        return least

    def parts(self, batch: Batch) -> dict[int, Part]:
        """Share a batch out, by consumer's id, and let each consumer stand behind its part.

        Raises PositionLost where the batch begins past a consumer's offset: what lies between would be skipped.
        """
        parts: dict[int, Part] = {}
        for key, following in batch.next.items():
            for consumer in filter(self._awake, self.of_topic(key.topic)):
                start = self.standing.get((consumer.id, key))
                if start is None or following <= start:
                    continue
                if batch.start[key] > start:
                    raise PositionLost(f"{consumer}: {key} was read from {batch.start[key]}, not from {start}")
                messages = _from(start, batch.messages.get(key, []))
                part = parts.setdefault(consumer.id, Part())
                part.messages += messages
                part.moves[key] = Move(start, following, len(messages), 0, when(messages[-1]) if messages else None)
                self.standing[consumer.id, key] = following
        return parts


def _from(start: int, messages: list[Message]) -> list[Message]:
    if not messages or (messages[0].offset() or 0) >= start:
        return messages
    return [message for message in messages if (message.offset() or 0) >= start]

"""The Kafka side: one member of a consumer group, read in batches.

In: topics to subscribe to, and where each partition starts. Out: batches of messages, partition by partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from . import kafka
from .batch import Batch
from .coverage import Coverage
from .errors import PipelineError
from .log import logger
from .message import key_of
from .model import TopicPartition
from .pulse import Pulse
from .told import Told

# Errors that come in place of a message and say that the partition's offset is not to be had.
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_SEEK_TRIES = 100
_AT_ONCE = 1_000  # messages: while they are made into objects no other thread runs, not even to send the batch before
_SLICE = 64  # the first slice of a batch, before the messages' size is known


class Reader:
    """A member of one consumer group. Not thread-safe: one thread owns it; callbacks run inside its calls.

    ``on_assign`` gets the new partitions and gives where each starts (a partition left out is paused);
    ``on_revoke`` gets those that are going, and whether they are already lost to another member.
    """

    def __init__(
        self,
        settings: kafka.Settings,
        on_assign: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]],
        on_revoke: Callable[[list[TopicPartition], bool], None],
        coverage: Coverage,
    ) -> None:
        self._told = Told()
        self._kafka = KafkaConsumer({**settings, "on_commit": self._told.answered})
        self._pulse = Pulse(self._kafka)
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._message_size = 0.0
        self._batch = Batch()
        self._topics: frozenset[str] = frozenset()
        self._paused: set[TopicPartition] = set()
        self._given_up: set[TopicPartition] = set()  # by librdkafka: their offset was lost, and it does not fetch them
        self._coverage = coverage
        self.positions: dict[TopicPartition, int] = {}
        self.trouble: PipelineError | None = None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Ask the group for these topics; names that begin with ^ are patterns."""
        wanted = frozenset(topics)
        if wanted == self._topics:
            return
        if not self._topics:
            self._coverage.begin()
        self._topics = wanted
        if wanted:
            self._subscribe(wanted)
        else:
            self.leave()

    def leave(self) -> None:
        """Leave the group at once, for others to take the partitions over.

        close() does not: a static member's partitions wait for it to come back until its session times out.
        """
        self._coverage.end()
        self._topics = frozenset()
        self._kafka.unsubscribe()
        self._kafka.poll(0.1)  # lets on_revoke run, after which librdkafka tells the coordinator

    def _subscribe(self, topics: Iterable[str]) -> None:
        self._kafka.subscribe(sorted(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def take(self, batchsize: int, maxbytes: int, wait: float) -> Batch:
        """Wait up to ``wait`` seconds for a first message, then take what is there without waiting.

        At most ``batchsize`` messages, and about ``maxbytes`` bytes: how many messages are asked for goes by the size
        of those before.
        Raises KafkaException on an error that concerns more than one partition.
        """
        if self._coverage.must_join(self._topics, self.positions.keys()):
            self._kafka.unsubscribe()
            self._subscribe(self._topics)
        batch = self._batch = Batch()
        first = self._kafka.poll(wait)
        if self.trouble is not None:
            raise self.trouble
        if first is not None:
            self._pulse.felt()
            self._put(batch, [first])
            self.more(batch, batchsize, maxbytes, 0.0)
        elif self.positions:
            self._pulse.feel(next(iter(self.positions)).topic)
        return batch

    def more(self, batch: Batch, batchsize: int, maxbytes: int, wait: float) -> None:
        """Add to a batch what arrives within ``wait`` seconds, within the same bounds as take()."""
        while batch.has_room(batchsize, maxbytes):
            asked = min(batchsize - batch.count, self._affordable(maxbytes - batch.bytes), _AT_ONCE)
            messages = self._kafka.consume(asked, wait)
            self._put(batch, messages)
            if len(messages) < asked:
                return

    def _affordable(self, bytes_left: int) -> int:
        if not self._message_size:
            return _SLICE
        return max(1, int(bytes_left / self._message_size))

    def _put(self, batch: Batch, messages: list[Message]) -> None:
        key: TopicPartition | None = None
        into: list[Message] = []
        size = 0
        for message in messages:
            if message.error() is not None:
                self._event(batch, message)
                continue
            if key is None or message.partition() != key.partition or message.topic() != key.topic:
                key = key_of(message)
                # a partition that was revoked while this was being taken is not read any more
                into = batch.messages.setdefault(key, []) if key in self.positions else []
            into.append(message)
            size += len(message)
        for key, taken in batch.messages.items():
            self._reached(batch, key, (taken[-1].offset() or 0) + 1)
        batch.count = sum(map(len, batch.messages.values()))
        batch.bytes += size
        if messages:
            self._message_size = max(size / len(messages), self._message_size * 0.9, 1.0)

    def _reached(self, batch: Batch, key: TopicPartition, offset: int) -> None:
        batch.start.setdefault(key, self.positions[key])
        batch.next[key] = self.positions[key] = max(batch.next.get(key, 0), offset)

    def _event(self, batch: Batch, message: Message) -> None:
        error = message.error()
        assert error is not None
        topic = message.topic() or ""
        key = key_of(message)
        if error.code() == KafkaError._PARTITION_EOF:
            if key in self.positions:
                self._reached(batch, key, message.offset() or 0)
        elif error.code() in _LOST:
            batch.lost.append(key)
            self._given_up.add(key)
        elif error.code() in _MISSING:
            pass  # a topic that is not there yet is looked for at each refresh of the metadata
        elif error.fatal() or not topic:
            raise KafkaException(error)
        elif error.retriable():
            logger.warning("%s: %s", key, error.str())
        else:
            batch.refused[topic] = error.str()

    # Where to read ------------------------------------------------------------------------------------------

    def align(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Read each assigned partition from the offset given on; one that is left out is paused."""
        self._pause([key for key in self.positions if key not in wanted and key not in self._paused])
        self._resume([key for key in self.positions if key in wanted and key in self._paused])
        for key, position in self.positions.items():
            offset = wanted.get(key, position)
            if offset != position or (key in wanted and key in self._given_up):
                self.seek(key, offset)

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Read this partition from ``offset`` on. Raises KafkaException where it is not being fetched."""
        place = KafkaPartition(key.topic, key.partition, offset)
        if key in self._given_up:
            self._given_up.remove(key)
            self._kafka.incremental_unassign([place])
            self._kafka.incremental_assign([place])
        else:
            self._seek(place)
        self.positions[key] = offset

    def _seek(self, place: KafkaPartition) -> None:
        for attempt in range(_SEEK_TRIES):
            try:
                self._kafka.seek(place)
                return
            except KafkaException as error:  # just assigned: librdkafka has not begun to fetch it yet
                if kafka.error_of(error).code() != KafkaError._STATE or attempt == _SEEK_TRIES - 1:
                    raise
                time.sleep(0.02)

    def stay(self) -> None:
        """Tell the group that this member lives, while nothing can be taken: no message is lost by it."""
        going = [key for key in self.positions if key not in self._paused]
        self._pause(going)
        message = self._kafka.poll(0)
        self._resume([key for key in going if key in self.positions])
        if message is not None and message.error() is None:  # it had left the queue before the pause
            key = key_of(message)
            self.seek(key, self.positions[key])

    def _pause(self, keys: list[TopicPartition]) -> None:
        if keys:
            self._kafka.pause([KafkaPartition(*key) for key in keys])
            self._paused.update(keys)

    def _resume(self, keys: list[TopicPartition]) -> None:
        if keys:
            self._kafka.resume([KafkaPartition(*key) for key in keys])
            self._paused.difference_update(keys)

    def follow(self, keys: Iterable[TopicPartition]) -> None:
        """Outside any group: read just these partitions, as if they had been assigned."""
        wanted = set(keys)
        gone = [key for key in self.positions if key not in wanted]
        new = sorted(wanted - self.positions.keys())
        if not gone and not new:
            return
        self._going(gone, lost=False)
        starts = self._on_assign(new)
        self.positions.update({key: starts.get(key, 0) for key in new})
        self._paused.clear()  # assigning begins anew
        self._given_up.clear()
        self._kafka.assign([KafkaPartition(k.topic, k.partition, offset) for k, offset in self.positions.items()])
        self._pause([key for key in new if key not in starts])

    # What the group says ------------------------------------------------------------------------------------

    def _assigned(self, consumer: KafkaConsumer, partitions: list[KafkaPartition]) -> None:
        keys = _keys(partitions)
        try:
            starts = self._on_assign(keys)
        except Exception as error:  # a callback cannot raise through librdkafka: take() does
            self.trouble = PipelineError(f"partitions could not be taken up: {error}")
            self.trouble.__cause__ = error
            starts = {}
        consumer.incremental_assign([KafkaPartition(k.topic, k.partition, starts.get(k, 0)) for k in keys])
        self.positions.update({key: starts.get(key, 0) for key in keys})
        self._coverage.assigned()
        self._pause([key for key in keys if key not in starts])

    def _revoked(self, consumer: KafkaConsumer, partitions: list[KafkaPartition]) -> None:
        self._going(_keys(partitions), lost=False)
        consumer.incremental_unassign(partitions)

    def _lost(self, consumer: KafkaConsumer, partitions: list[KafkaPartition]) -> None:
        self._going(_keys(partitions), lost=True)
        consumer.incremental_unassign(partitions)
        self.trouble = self.trouble or PipelineError("the session with the group's coordinator was lost")

    def _going(self, keys: list[TopicPartition], lost: bool) -> None:
        try:
            self._on_revoke(keys, lost)
        except Exception as error:
            self.trouble = PipelineError(f"partitions could not be given up: {error}")
            self.trouble.__cause__ = error
        for key in keys:
            self.positions.pop(key, None)
            self._told.forget(key)
            self._given_up.discard(key)
            self._batch.messages.pop(key, None)
            self._batch.next.pop(key, None)
        # librdkafka's pause outlives the assignment: a partition that comes back would never be read again
        self._resume([key for key in keys if key in self._paused])

    # What Kafka is told -------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Tell Kafka, without waiting, where the group stands, as far as it has not been told; PostgreSQL knows it."""
        news = self._told.news({key: at for key, at in offsets.items() if key in self.positions})
        if news:
            self._kafka.commit(offsets=news, asynchronous=True)

    def watermarks(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return (low, high) of the assigned partitions as the last fetches told; unknown ones are left out."""
        seen = {}
        for key in self.positions:
            marks = self._kafka.get_watermark_offsets(KafkaPartition(*key), cached=True)
            if marks is not None and marks[1] >= 0:
                seen[key] = (max(marks[0], 0), marks[1])
        return seen

    def close(self) -> None:
        """Stop reading. A static member's partitions wait for it to come back until its session times out."""
        self._on_revoke = lambda keys, lost: None  # there is nobody to give anything up any more
        kafka.close(self._kafka)


def _keys(partitions: Iterable[KafkaPartition]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition) for p in partitions]

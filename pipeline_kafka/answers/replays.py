"""What a replay reads: which offsets that is, and, for replay_here(), the messages themselves.

In: a request. Out: rows of replay_partitions; messages, in pieces.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from confluent_kafka import IsolationLevel, KafkaException, Message
from confluent_kafka.admin._listoffsets import OffsetSpec

from ..batch import Batch
from ..consumer import Reader
from ..coverage import Coverage
from ..kafka import consumer_settings, error_of
from ..model import TopicPartition
from .client import EARLIEST, LATEST, NOBODY, Kafka, no_partition
from .protocol import Request, Unanswered

BEGINNING, END = -2, -1
PIECE, PIECE_BYTES = 5_000, 4_000_000  # messages and bytes in a piece, at the most
_WAIT = 0.25  # seconds between looks at whether Kafka has been silent for too long

Offsets = dict[int, int]  # by partition


def replay_range(
    request: Request,
    topic: str,
    partitions: list[int] | None,
    start: int | None,
    end: int | None,
    start_ms: int | None,
    end_ms: int | None,
) -> Iterator[dict[str, Any]]:
    """Yield each partition with the offsets that a replay begins at, and ends before.

    An offset behind a partition's end is taken as its end. Raises Unanswered where an offset to begin at, or a
    partition, is not there.
    """
    kafka = Kafka(request)
    numbers = _numbers(kafka, topic, partitions)
    low, high = _list(kafka, topic, numbers, EARLIEST), _list(kafka, topic, numbers, LATEST)
    begin = _at(kafka, topic, start, start_ms, low, high) if start is not None or start_ms is not None else low
    until = _at(kafka, topic, end, end_ms, low, high)
    for number in numbers:
        if begin[number] < low[number]:
            raise Unanswered(
                "22003",
                f"{TopicPartition(topic, number)} begins with offset {low[number]}, and {begin[number]} was asked for",
                hint="start_offset => -2 takes what is still there.",
            )
        yield {"partition": number, "start": begin[number], "end": max(until[number], begin[number])}


def _numbers(kafka: Kafka, topic: str, partitions: list[int] | None) -> list[int]:
    there = sorted(kafka.metadata(topic).topics[topic].partitions)
    for number in partitions or []:
        if number not in there:
            raise no_partition(topic, number, len(there))
    return there if partitions is None else sorted(set(partitions))


def _at(kafka: Kafka, topic: str, offset: int | None, ms: int | None, low: Offsets, high: Offsets) -> Offsets:
    """Return what an offset, BEGINNING, END or a time stands for in each partition; END for none of them."""
    if ms is not None:
        found = _list(kafka, topic, list(high), OffsetSpec.for_timestamp(ms))
        return {number: high[number] if at < 0 else min(at, high[number]) for number, at in found.items()}
    if offset is None or offset == END:
        return high
    return low if offset == BEGINNING else {number: min(offset, high[number]) for number in high}


def _list(kafka: Kafka, topic: str, numbers: list[int], spec: OffsetSpec) -> Offsets:
    level = IsolationLevel.READ_UNCOMMITTED if kafka.reads_uncommitted() else IsolationLevel.READ_COMMITTED
    found = kafka.offsets([(topic, number) for number in numbers], spec, level)
    return {number: result.offset for (_, number), result in found.items()}


def messages(
    request: Request, topic: str, starts: dict[str, int], ends: dict[str, int], most: int | None
) -> Iterator[bytes]:
    """Yield the messages between offsets of each partition, ``most`` of them at the most, in pieces.

    A piece is MessagePack of [offsets that are left, {partition: offset it is read up to}, messages], a message
    [partition, offset, kind of timestamp, milliseconds, key, value, headers].
    Raises Unanswered; the request's timeout is how long Kafka may be silent.
    """
    kafka = Kafka(request)
    until = {TopicPartition(topic, int(number)): end for number, end in ends.items() if end > starts[number]}
    reader = _reader(request, kafka, {key: starts[str(key.partition)] for key in until})
    reader.follow(until)
    at = {key: starts[str(key.partition)] for key in until}
    while at.keys() & until.keys() and (most is None or most > 0):
        batch = _take(reader, kafka, request.timeout)
        batch.cut(until)
        taken = _limited(batch, most)
        most = None if most is None else most - len(taken)
        at.update(batch.next)
        left = sum(end - at[key] for key, end in until.items())
        yield _packed(left, batch.next, taken)
        reader.align({key: offset for key, offset in at.items() if offset < until[key]})
        if left == 0:
            return


def _reader(request: Request, kafka: Kafka, starts: Mapping[TopicPartition, int]) -> Reader:
    settings = consumer_settings(request.brokers, request.properties.items(), NOBODY, None, kafka.ear.settings)
    alone = Coverage(lambda topics, mine: True)  # in no group, so nothing is left to nobody
    return Reader(settings, lambda keys: {key: starts[key] for key in keys}, lambda keys, lost: None, alone)


def _take(reader: Reader, kafka: Kafka, patience: float) -> Batch:
    """Return the next batch that says anything of any partition."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            batch = reader.take(PIECE, PIECE_BYTES, _WAIT)
        except KafkaException as error:
            raise kafka.unanswered(error_of(error)) from None
        for topic, reason in batch.refused.items():
            raise Unanswered("42501", f"Kafka does not let topic {topic} be read: {reason}")
        for key in batch.lost:
            raise Unanswered("22003", f"{key} does not have offset {reader.positions[key]} any more")
        if batch.next:
            return batch
    raise kafka.timed_out()


def _limited(batch: Batch, most: int | None) -> list[Message]:
    """Return a batch's messages, ``most`` at the most; where they are cut off, its offsets end behind them."""
    taken: list[Message] = []
    for key, mine in batch.messages.items():
        if most is not None and len(mine) > most - len(taken):
            batch.next[key] = mine[most - len(taken)].offset() or 0
            mine = mine[: most - len(taken)]
        taken += mine
    return taken


def _packed(left: int, reached: Mapping[TopicPartition, int], taken: list[Message]) -> bytes:
    rows = [(m.partition(), m.offset(), *m.timestamp(), m.key(), m.value(), m.headers()) for m in taken]
    return msgspec.msgpack.encode((left, {key.partition: offset for key, offset in reached.items()}, rows))

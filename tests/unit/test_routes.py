"""Who gets which part of a batch, from where partitions are read, and how a consumer that fails is left behind."""

from __future__ import annotations

import dataclasses

import pytest
from confluent_kafka import Message

from pipeline_kafka.batch import Batch
from pipeline_kafka.errors import PositionLost
from pipeline_kafka.model import Consumer, TopicPartition
from pipeline_kafka.routes import Routes
from pipeline_kafka.work import Failure

P0, P1 = TopicPartition("events", 0), TopicPartition("events", 1)
NOW, LATER, NEVER = Failure(retry_in=0.0), Failure(retry_in=3600.0), Failure(retry_in=None)


def consumer(id: int, topic: str = "events", **settings: object) -> Consumer:
    known: dict[str, object] = {
        "id": id, "topic": topic, "relation": id, "name": f"t{id}", "owner": "me", "group_id": "g", "format": "text",
        "delimiter": "\t", "batchsize": 100, "maxbytes": 1000, "timeout": 250, "started": True,
        "on_error": "dead_letter", "on_offset_lost": "stop", "search_path": "public",
    }  # fmt: skip
    fields = {field.name: None for field in dataclasses.fields(Consumer)}
    return Consumer(**{**fields, **known, **settings})  # type: ignore[arg-type]


def routes(*consumers: Consumer, **standing: int) -> Routes:
    """Routes whose consumers stand in P0: a=7 for the first, b=3 for the second, and so on."""
    made = Routes()
    made.replace(consumers)
    made.standing = {(each.id, P0): offset for each, offset in zip(consumers, standing.values(), strict=False)}
    return made


def batch(start: int, stop: int, key: TopicPartition = P0) -> Batch:
    taken = Batch(count=stop - start)
    messages = [Message(topic=key.topic, partition=key.partition, offset=n, value=b"x") for n in range(start, stop)]
    if messages:
        taken.messages[key] = messages
    taken.start[key], taken.next[key] = start, stop
    return taken


def offsets(made: Routes, taken: Batch) -> dict[int, list[int | None]]:
    return {i: [message.offset() for message in part.messages] for i, part in made.parts(taken).items()}


def test_a_partition_is_read_from_where_the_last_of_its_consumers_stands() -> None:
    made = routes(consumer(1), consumer(2), a=7, b=3)
    assert made.wanted([P0, P1]) == {P0: 3}


def test_each_consumer_gets_what_lies_before_it() -> None:
    made = routes(consumer(1), consumer(2), a=7, b=3)
    assert offsets(made, batch(3, 9)) == {1: [7, 8], 2: [3, 4, 5, 6, 7, 8]}
    assert made.wanted([P0]) == {P0: 9}
    assert offsets(made, batch(3, 9)) == {}


def test_a_batch_that_begins_past_a_consumer_is_refused() -> None:
    made = routes(consumer(1), a=3)
    with pytest.raises(PositionLost, match=r"events\[0\] was read from 5, not from 3"):
        made.parts(batch(5, 9))


def test_a_gap_moves_a_consumer_without_a_message() -> None:
    made = routes(consumer(1), a=3)
    taken = batch(3, 3)
    taken.next[P0] = 8
    part = made.parts(taken)[1]
    assert (part.messages, part.moves[P0].start, part.moves[P0].next) == ([], 3, 8)


def test_a_consumer_that_fails_holds_nobody_up_and_misses_nothing() -> None:
    slow, fast = consumer(1), consumer(2)
    made = routes(slow, fast, a=0, b=0)
    parts = made.parts(batch(0, 5))
    made.settle(slow, LATER)
    made.retreat(slow, parts[1].moves)
    made.settle(fast, None)
    assert made.wanted([P0]) == {P0: 5}
    assert made.reached([P0], []) == {P0: 0}
    assert offsets(made, batch(5, 6)) == {2: [5]}


def test_a_pause_that_is_over_brings_a_consumer_back_to_where_it_stood() -> None:
    one, other = consumer(1), consumer(2)
    made = routes(one, other, a=0, b=5)
    made.settle(one, NOW)
    assert made.wake()
    assert not made.wake()
    assert made.wanted([P0]) == {P0: 0}
    assert made.failures(one) == 1
    made.settle(one, None)
    assert made.failures(one) == 0


def test_a_consumer_that_stopped_is_not_tried_again() -> None:
    one = consumer(1)
    made = routes(one, a=0)
    made.settle(one, NEVER)
    assert not made.wake()
    assert made.wanted([P0]) == {}


def test_failures_in_a_row_are_counted() -> None:
    one = consumer(1)
    made = routes(one, a=0)
    made.settle(one, LATER)
    made.settle(one, LATER)
    made.settle(one, Failure(retry_in=0.0, counts=False))
    assert made.failures(one) == 2


def test_a_consumer_that_was_changed_is_tried_at_once() -> None:
    one, other = consumer(1), consumer(2)
    made = routes(one, other, a=0, b=0)
    made.settle(one, LATER)
    made.settle(other, LATER)
    made.replace([dataclasses.replace(one, format="csv"), other])
    made.wake()
    assert set(offsets(made, batch(0, 1))) == {1}


def test_partitions_that_went_are_forgotten() -> None:
    made = routes(consumer(1), a=3)
    made.standing[1, P1] = 4
    made.forget([P0])
    assert made.standing == {(1, P1): 4}


def test_bounds_suit_every_consumer() -> None:
    made = routes(consumer(1, batchsize=10, maxbytes=9000, timeout=100), consumer(2, batchsize=50, maxbytes=400))
    assert made.bounds() == (10, 400)
    assert made.timeout() == 0.1


@pytest.mark.parametrize(
    ("topic", "name", "expected"),
    [
        ("events", "events", True),
        ("events", "events2", False),
        ("event.", "events", False),
        ("^events", "events2", True),
        ("^events$", "events2", False),
        ("^(a|b)-.*", "b-1", True),
        ("^vents", "events", False),
        ("^.*", "__consumer_offsets", False),
        ("^__consumer", "__consumer_offsets", True),
    ],
)
def test_topics_and_patterns(topic: str, name: str, expected: bool) -> None:
    assert consumer(1, topic).reads(name) is expected


def test_topics_that_are_excluded() -> None:
    chosen = consumer(1, "^events", exclude="-internal$")
    assert [chosen.reads(name) for name in ("events-a", "events-internal", "events-internal-a")] == [True, False, True]

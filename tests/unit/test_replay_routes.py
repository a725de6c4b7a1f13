"""Where a replay ends: at an offset in each partition, or after so many messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Message

from pipeline_kafka.batch import Batch
from pipeline_kafka.errors import PositionLost
from pipeline_kafka.model import TopicPartition
from pipeline_kafka.replay_routes import ReplayRoutes
from tests.models import consumer

FIRST, SECOND = TopicPartition("events", 0), TopicPartition("events", 1)
REPLAY = replace(consumer(), id=7, replay=True)


def routes(left: float = float("inf"), **ends: int) -> ReplayRoutes:
    """A replay that stands at 0 in two partitions, which end at 10 unless said otherwise."""
    made = ReplayRoutes({FIRST: ends.get("first", 10), SECOND: ends.get("second", 10)})
    made.replace([REPLAY])
    made.standing = {(7, FIRST): 0, (7, SECOND): 0}
    made.left = left
    return made


def batch(**read: tuple[int, int]) -> Batch:
    """What lies between two offsets of each partition."""
    made = Batch()
    for key, (start, end) in {FIRST: read.get("first", (0, 0)), SECOND: read.get("second", (0, 0))}.items():
        if end > start:
            made.messages[key] = [Message(topic="events", partition=key.partition, offset=n) for n in range(start, end)]
            made.start[key], made.next[key] = start, end
    return made


def offsets(made: ReplayRoutes, taken: Batch) -> list[tuple[int | None, int | None]]:
    """(partition, offset) of the messages of the replay's part."""
    parts = made.parts(taken)
    return [(message.partition(), message.offset()) for part in parts.values() for message in part.messages]


def test_messages_behind_the_end_are_none_of_it() -> None:
    made = routes(first=2)
    assert offsets(made, batch(first=(0, 5), second=(0, 1))) == [(0, 0), (0, 1), (1, 0)]
    assert made.standing == {(7, FIRST): 2, (7, SECOND): 1}
    assert made.wanted([FIRST, SECOND]) == {SECOND: 1}
    assert not made.over()
    assert offsets(made, batch(second=(1, 12))) == [(1, n) for n in range(1, 10)]
    assert made.over()
    assert made.wanted([FIRST, SECOND]) == {}


def test_a_gap_before_the_end_is_passed() -> None:
    made = routes()
    taken = batch(first=(0, 3))
    taken.next[FIRST] = 12
    made.parts(taken)
    assert made.standing[7, FIRST] == 10


def test_a_limit_ends_in_the_middle_of_a_batch() -> None:
    made = routes(left=4)
    parts = made.parts(batch(first=(0, 3), second=(0, 3)))
    moves = {key: (move.start, move.next, move.messages) for key, move in parts[7].moves.items()}
    assert moves == {FIRST: (0, 3, 3), SECOND: (0, 1, 1)}
    assert made.over()
    assert made.wanted([FIRST, SECOND]) == {}


def test_with_a_limit_all_partitions_are_claimed() -> None:
    parts = routes(left=4).parts(batch(first=(0, 3)))
    assert parts[7].moves[SECOND].start == parts[7].moves[SECOND].next == 0
    assert SECOND not in routes().parts(batch(first=(0, 3)))[7].moves


def test_what_failed_is_left_again() -> None:
    made = routes(left=4)
    parts = made.parts(batch(first=(0, 4)))
    made.retreat(REPLAY, parts[7].moves)
    assert (made.left, made.standing[7, FIRST]) == (4, 0)
    assert not made.over()
    with pytest.raises(PositionLost):
        made.parts(batch(first=(4, 6)))

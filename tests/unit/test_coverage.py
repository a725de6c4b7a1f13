"""When a member of a group looks whether its group reads everything, and when it joins anew."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from pipeline_kafka import coverage
from pipeline_kafka.coverage import MOST, SELDOM, SOON, Coverage
from pipeline_kafka.errors import PipelineError
from pipeline_kafka.model import TopicPartition


class Clock:
    """A clock that stands in for time.monotonic(): minutes need not be waited for."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(coverage, "time", clock)
    return clock


class Said:
    """What the group looks like, one look after the other."""

    def __init__(self, *answers: bool | None) -> None:
        self.answers = list(answers)

    def fits(self, topics: Collection[str], mine: Collection[TopicPartition]) -> bool | None:
        return self.answers.pop(0)


def look(made: Coverage, *mine: int) -> bool:
    return made.must_join(["t"], [TopicPartition("t", partition) for partition in mine])


def test_a_wrong_first_assignment_is_left_at_once(clock: Clock) -> None:
    made = Coverage(Said(False).fits)
    made.begin()
    assert not look(made)
    made.assigned()
    assert look(made)


def test_an_assignment_that_never_comes_is_looked_at(clock: Clock) -> None:
    said = Said(False)
    made = Coverage(said.fits)
    made.begin()
    clock.now += SOON
    assert look(made)


def test_a_later_assignment_must_be_wrong_twice(clock: Clock) -> None:
    made = Coverage(Said(True, False, True, False, False).fits)
    made.begin()
    made.assigned()
    assert not look(made)
    made.assigned()
    answers = []
    for seconds in (SOON, SOON, SELDOM, SOON):
        clock.now += seconds
        answers.append(look(made))
    assert answers == [False, False, False, True]


def test_a_group_that_rebalances_is_looked_at_again(clock: Clock) -> None:
    said = Said(None, None, False)
    made = Coverage(said.fits)
    made.begin()
    made.assigned()
    assert not look(made)
    clock.now += SOON
    assert not look(made)
    clock.now += SOON
    assert look(made)
    assert said.answers == []


def test_joins_that_change_nothing_become_seldom(clock: Clock) -> None:
    made = Coverage(lambda topics, mine: False)
    made.begin()
    clock.now += SOON
    begun = clock.now
    joins = 0
    while clock.now < begun + 10 * MOST:
        joins += look(made, 0)
        clock.now += SOON
    assert 8 <= joins <= 20


def test_a_member_that_gets_nothing_twice_is_made_anew(clock: Clock) -> None:
    made = Coverage(lambda topics, mine: False)
    made.begin()
    clock.now += SOON
    assert look(made)
    clock.now += SOON
    assert not look(made)
    clock.now += SOON
    with pytest.raises(PipelineError, match="no partition"):
        look(made)


def test_nobody_looks_after_leaving(clock: Clock) -> None:
    made = Coverage(Said().fits)
    made.begin()
    made.end()
    clock.now += SELDOM
    assert not look(made)

"""A group's coordinator that moves, loads or is not there is asked again, as long as there is time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline_kafka.answers.client import Kafka
from pipeline_kafka.answers.protocol import Request, Unanswered

ASKED_AGAIN = [
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
]


class Answering(Kafka):
    """A cluster whose brokers answer; what its coordinators say is the test's."""

    def __init__(self, timeout: float) -> None:
        super().__init__(Request("", {}, ["h:1"], {}, timeout))

    def admin(self) -> Any:
        """A client that knows the cluster."""
        return self

    def describe_cluster(self, request_timeout: float) -> Future[None]:
        """An answer."""
        return given(None)

    def poll(self, timeout: float) -> None:
        """Nothing to hear."""


def given(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


def saying(*answers: Any) -> Callable[[float], Future[Any]]:
    """Answers one after the other; a number is an error of Kafka's."""
    left = iter(answers)
    return lambda timeout: given(KafkaException(KafkaError(n)) if isinstance(n := next(left), int) else n)


@pytest.mark.parametrize("code", ASKED_AGAIN)
def test_what_passes_is_waited_for(code: int) -> None:
    assert Answering(30).coordinated(saying(code, code, "here"), 'group "g"') == "here"


@pytest.mark.parametrize(
    ("code", "sqlstate"),
    [
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "57P03"),
        (KafkaError.NOT_COORDINATOR, "57P03"),
        (KafkaError._TIMED_OUT, "57P03"),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, "55006"),
    ],
)
def test_what_does_not_pass_in_time_is_said(code: int, sqlstate: str) -> None:
    with pytest.raises(Unanswered, match=r'^group "g": ') as caught:
        Answering(0.6).coordinated(saying(*[code] * 100), 'group "g"')
    assert caught.value.trouble.sqlstate == sqlstate


def test_a_refusal_is_not_asked_for_again() -> None:
    with pytest.raises(Unanswered, match=r'^group "g": ') as caught:
        Answering(30).coordinated(saying(KafkaError.GROUP_AUTHORIZATION_FAILED), 'group "g"')
    assert caught.value.trouble.sqlstate == "42501"


def test_an_answer_that_is_not_whole_is_asked_for_again() -> None:
    """A list of groups, which a broker did not give its part of."""
    loading = KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    answer = Answering(30).coordinated(
        saying("a part", "all"), "groups", lambda found: loading if found == "a part" else None
    )
    assert answer == "all"


def test_a_coordinator_that_never_answers_is_said() -> None:
    with pytest.raises(Unanswered, match=r"no coordinator answered within 0\.3 s") as caught:
        Answering(0.3).coordinated(lambda timeout: Future(), 'group "g"')
    assert caught.value.trouble.sqlstate == "57P03"

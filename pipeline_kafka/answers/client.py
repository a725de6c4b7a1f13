"""Kafka, as answers ask it: within a time, and with errors that say at which step they came.

In: a request. Out: clients, what their calls return, and Unanswered.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec
from confluent_kafka.admin._metadata import ClusterMetadata

from .. import steps
from ..hearing import Ear
from ..kafka import Settings, base_settings, error_of
from .protocol import Request, Unanswered

T = TypeVar("T")
Place = tuple[str, int]  # a topic and a partition

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

NOBODY = "pipeline_kafka-nobody"  # the group.id of consumers that are in no group: nothing is committed for it

# What a coordinator says that moves, loads or is not there yet; and what is heard of one whose broker went.
_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
)
_LONGEST_TRY = 5.0
_PAUSE = 0.2  # seconds before a coordinator is asked again
_SLICE = 0.25  # seconds between looks at what was heard
_LONGEST_NAME, _SHOWN = 249, 60  # characters; by Kafka's org.apache.kafka.common.internals.Topic
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{_LONGEST_NAME}}}")
_NAMES = f"It has up to {_LONGEST_NAME} of A-Z a-z 0-9 . _ -: topics() shows those there are."
_OTHERS_WAIT = 2.0  # seconds the other brokers may take to answer where one refuses


class Refused(Unanswered):
    """Kafka did not let a question be asked: with the step at which it was refused."""

    def __init__(self, refusal: steps.Refusal, what: str = "") -> None:
        about = f"{what}: " if what else ""
        super().__init__(refusal.step.sqlstate, f"{about}{refusal}", hint=refusal.step.hint)
        self.refusal = refusal


class Kafka:
    """The cluster of a request, for as long as its timeout lasts."""

    def __init__(self, request: Request) -> None:
        self.ear = Ear()
        self._settings = {**base_settings(request.brokers, request.properties.items()), **self.ear.settings}
        self._uncommitted = request.properties.get("isolation.level") == "read_uncommitted"
        self._end = time.monotonic() + request.timeout
        self._timeout = request.timeout
        self._refusal_wait = 0.0 if len(request.brokers) == 1 else _OTHERS_WAIT
        self._admin: AdminClient | None = None

    def left(self) -> float:
        """Return the seconds that are left. Raises Unanswered where none is."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.timed_out()
        return left

    def reads_uncommitted(self) -> bool:
        """Tell whether messages of open transactions are read: a property says so."""
        return self._uncommitted

    def admin(self) -> AdminClient:
        """Return a client for metadata, offsets and groups."""
        if self._admin is None:
            self._admin = self._made(AdminClient, self._settings)
        return self._admin

    def consumer(self, **own: Any) -> Consumer:
        """Return a consumer that is in no group; ``own`` are properties of its own, with _ for a dot."""
        quiet = {"group.id": NOBODY, "enable.auto.commit": False, "enable.auto.offset.store": False}
        named = {name.replace("_", "."): value for name, value in own.items()}
        return self._made(Consumer, {**self._settings, **quiet, **named})

    def _made(self, kind: Callable[[Settings], T], settings: Settings) -> T:
        try:
            return kind(settings)
        except KafkaException as error:
            raise self.unanswered(error_of(error)) from None

    def metadata(self, topic: str | None = None, patience: float = math.inf) -> ClusterMetadata:
        """Return the brokers and topics, or with ``topic`` the brokers and that one.

        Raises Unanswered: where a broker cannot be reached after ``patience`` seconds, where it refuses sooner; at once
        for what is no name of a topic, which librdkafka would take for one that is not there, or not at all.
        """
        if topic is not None and not _TOPIC.fullmatch(topic):
            shown = topic if len(topic) <= _LONGEST_NAME else f"{topic[:_SHOWN]}…"
            raise Unanswered("42602", f'"{shown}" is no name of a topic', hint=_NAMES)
        known = self._listed({"topic": topic} if topic is not None else {}, patience)
        refusal = known.topics[topic].error if topic is not None else None
        if refusal is not None:
            raise self.unanswered(refusal, f'topic "{topic}"')
        return known

    def _listed(self, some: dict[str, str], patience: float) -> ClusterMetadata:
        """Ask in a thread, and listen meanwhile: the call itself would only end with its time."""
        begun = time.monotonic()
        pool = ThreadPoolExecutor(1)
        answer = pool.submit(self.admin().list_topics, timeout=self.left(), **some)
        pool.shutdown(wait=False)
        while not wait([answer], min(_SLICE, self.left())).done:
            heard = self.heard()
            longest = self._refusal_wait if heard is not None and heard.weight >= steps.REFUSED else patience
            if heard is not None and time.monotonic() - begun >= longest:
                raise Refused(heard)
        return self.wait(answer)

    def offsets(
        self,
        places: Iterable[Place],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[Place, ListOffsetsResultInfo]:
        """Return what ``spec`` stands for in each of these partitions, in their order. Raises Unanswered."""
        wanted = {TopicPartition(*place): spec for place in places}
        if not wanted:
            return {}
        try:
            futures = self.admin().list_offsets(wanted, isolation_level=isolation, request_timeout=self.left())
        except KafkaException as error:
            raise self.unanswered(error_of(error)) from None
        found = {(key.topic, key.partition): self.wait(future, str(key.topic)) for key, future in futures.items()}
        return dict(sorted(found.items()))

    def wait(self, future: Future[T], what: str = "") -> T:
        """Return a future's result. ``what`` is what an error is about. Raises Unanswered."""
        try:
            return future.result(self.left())
        except TimeoutError:
            raise self.timed_out() from None
        except KafkaException as error:
            raise self.unanswered(error_of(error), what) from None

    def coordinated(
        self, ask: Callable[[float], Future[T]], what: str, failed: Callable[[T], Exception | None] = lambda _: None
    ) -> T:
        """Return what a group's coordinator answers to ``ask``, a function of a timeout in seconds.

        A coordinator that moves, loads or is not there is asked again, as long as there is time. ``failed`` returns
        what went wrong by an answer that tells. Raises Unanswered, about ``what``.
        """
        self.wait(self.admin().describe_cluster(request_timeout=self.left()))  # a cluster that answers at all
        while True:
            try:
                answer = ask(_share(self.left())).result(self.left())
                refusal = failed(answer)
                if refusal is None:
                    return answer
                raise refusal
            except TimeoutError:
                raise self._no_coordinator(what) from None
            except KafkaException as error:
                reason = error_of(error)
            if reason.code() not in _PASSING:
                raise self.unanswered(reason, what)
            if self._end - time.monotonic() < 2 * _PAUSE:
                raise self._no_coordinator(what) if reason.code() in steps.VAGUE else self.unanswered(reason, what)
            time.sleep(_PAUSE)

    def _no_coordinator(self, what: str) -> Unanswered:
        said = f"{what}: no coordinator answered within {self._timeout:g} s, though Kafka did"
        return Unanswered("57P03", said, hint=steps.COORDINATOR.hint)

    def unanswered(self, error: KafkaError, what: str = "") -> Unanswered:
        """Return an error of Kafka's as one that names the step it came at, and ``what`` it is about.

        That is the step of what was heard before, where the error does not say why.
        """
        self.heard()
        return Refused(self.ear.reason(error), what)

    def timed_out(self) -> Unanswered:
        """Return that there was no answer in time, and why if that is known."""
        told = self.heard()
        if told is not None:
            return Refused(told)
        text = f"Kafka did not answer within {self._timeout:.3g} s"
        return Unanswered("08006", text, hint=steps.CONNECTION.hint)

    def heard(self) -> steps.Refusal | None:
        """Return why brokers could not be spoken to so far; None where nothing was said."""
        if self._admin is not None:
            self._admin.poll(0)
        return self.ear.told


def no_partition(topic: str, partition: int, count: int) -> Unanswered:
    """Return that a topic of so many partitions does not have this one."""
    return Unanswered("42704", f'topic "{topic}" has no partition {partition}', f"It has {count}.")


def _share(left: float) -> float:
    """Return how many seconds one try may take: not all that are left, for a broker that hangs has a successor."""
    return min(max(left / 2, min(left, 1.0)), _LONGEST_TRY)

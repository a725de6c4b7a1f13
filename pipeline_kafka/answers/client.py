"""Kafka, as answers ask it: within a time, and with errors that say at which step they came.

In: a request. Out: clients, what their calls return, and Unanswered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from ..kafka import base_settings, error_of
from ..log import logger
from .protocol import Request, Unanswered

T = TypeVar("T")

NOBODY = "pipeline_kafka-nobody"  # the group.id of consumers that are in no group: nothing is committed for it

_COORDINATOR_HINT = "See whether each partition of topic __consumer_offsets has a leader, and give it a longer timeout."
# Which step failed, by librdkafka's code: its SQLSTATE, and what to look at.
_STEPS = {
    KafkaError._RESOLVE: ("08001", "name resolution", "The host's name is not known to this server."),
    KafkaError._SSL: ("08001", "TLS", "Look at ssl.ca.location, the certificates, and whether the port speaks TLS."),
    KafkaError._AUTHENTICATION: ("28000", "authentication", "Look at sasl.mechanism, sasl.username and sasl.password."),
    KafkaError.SASL_AUTHENTICATION_FAILED: ("28000", "authentication", "Look at sasl.username and sasl.password."),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "42501",
        "authorization",
        "Kafka's ACLs do not let this user at the topic.",
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (
        "42501",
        "authorization",
        "Kafka's ACLs do not let this user at the group.",
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ("42501", "authorization", "Kafka's ACLs do not let this user do that."),
    KafkaError.UNKNOWN_TOPIC_OR_PART: ("42704", "look-up", "topics() shows those there are."),
    KafkaError._UNKNOWN_TOPIC: ("42704", "look-up", "topics() shows those there are."),
    KafkaError._UNKNOWN_PARTITION: ("42704", "look-up", "topic_partitions() shows those there are."),
    KafkaError.INVALID_GROUP_ID: ("22023", "look-up", None),
    KafkaError.GROUP_ID_NOT_FOUND: ("42704", "look-up", "groups() shows those there are."),
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: ("57P03", "coordinator", _COORDINATOR_HINT),
    KafkaError.COORDINATOR_NOT_AVAILABLE: ("57P03", "coordinator", _COORDINATOR_HINT),
    KafkaError.NOT_COORDINATOR: ("57P03", "coordinator", _COORDINATOR_HINT),
    KafkaError._WAIT_COORD: ("57P03", "coordinator", _COORDINATOR_HINT),
    KafkaError.UNSTABLE_OFFSET_COMMIT: ("55006", "offsets", "A transaction that commits offsets of it has not ended."),
}
_CONNECTION = (
    "08006",
    "connection",
    "See whether the brokers run, and add_broker() names them as this server reaches them.",
)
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
_VAGUE = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
_LONGEST_TRY = 5.0
_PAUSE = 0.2  # seconds before a coordinator is asked again
_TELLING = (KafkaError._RESOLVE, KafkaError._SSL, KafkaError._AUTHENTICATION, KafkaError._TRANSPORT)


class Kafka:
    """The cluster of a request, for as long as its timeout lasts."""

    def __init__(self, request: Request) -> None:
        self._settings = {
            **base_settings(request.brokers, request.properties.items()),
            "logger": logger,
            "error_cb": self._on_error,
        }
        self._end = time.monotonic() + request.timeout
        self._timeout = request.timeout
        self._told: KafkaError | None = None
        self._admin: AdminClient | None = None

    def left(self) -> float:
        """Return the seconds that are left. Raises Unanswered where none is."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.timed_out()
        return left

    def admin(self) -> AdminClient:
        """Return a client for metadata, offsets and groups."""
        if self._admin is None:
            self._admin = AdminClient(self._settings)
        return self._admin

    def consumer(self, **own: Any) -> Consumer:
        """Return a consumer that is in no group; ``own`` are properties of its own, with _ for a dot."""
        quiet = {"group.id": NOBODY, "enable.auto.commit": False, "enable.auto.offset.store": False}
        named = {name.replace("_", "."): value for name, value in own.items()}
        return Consumer({**self._settings, **quiet, **named})

    def metadata(self, topic: str | None = None) -> ClusterMetadata:
        """Return the brokers and topics, or with ``topic`` the brokers and that one. Raises Unanswered."""
        some = {"topic": topic} if topic is not None else {}
        try:
            known = self.admin().list_topics(**some, timeout=self.left())
        except KafkaException as error:
            raise self.unanswered(error_of(error)) from None
        refusal = known.topics[topic].error if topic is not None else None
        if refusal is not None:
            raise self.unanswered(refusal, f'topic "{topic}"')
        return known

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
                raise self._no_coordinator(what) if reason.code() in _VAGUE else self.unanswered(reason, what)
            time.sleep(_PAUSE)

    def _no_coordinator(self, what: str) -> Unanswered:
        said = f"{what}: no coordinator answered within {self._timeout:g} s, though Kafka did"
        return Unanswered("57P03", said, hint=_COORDINATOR_HINT)

    def unanswered(self, error: KafkaError, what: str = "") -> Unanswered:
        """Return an error of Kafka's as one that names the step it came at, and ``what`` it is about."""
        self._hear()
        vague = error.code() in _VAGUE
        told = self._told if vague and self._told is not None else error
        sqlstate, step, hint = _STEPS.get(told.code(), _CONNECTION if vague else ("58000", "request", None))
        about = f"{what}: " if what else ""
        return Unanswered(sqlstate, f"{about}Kafka's {step} failed: {told.str()}", hint=hint)

    def timed_out(self) -> Unanswered:
        """Return that there was no answer in time, and why if that is known."""
        self._hear()
        if self._told is not None:
            return self.unanswered(self._told)
        return Unanswered("08006", f"Kafka did not answer within {self._timeout:g} s", hint=_CONNECTION[2])

    def _hear(self) -> None:
        if self._admin is not None:
            self._admin.poll(0)

    def _on_error(self, error: KafkaError) -> None:
        """Keep what tells most: a request that timed out does not say why, and a refusal is followed by a hang-up."""
        if error.code() in _TELLING and (self._told is None or self._told.code() == KafkaError._TRANSPORT):
            self._told = error


def _share(left: float) -> float:
    """Return how many seconds one try may take: not all that are left, for a broker that hangs has a successor."""
    return min(max(left / 2, min(left, 1.0)), _LONGEST_TRY)

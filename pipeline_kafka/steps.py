"""At which step Kafka could not be spoken to: its name, the connection, TLS, who one is, or what one may do.

In: an error of librdkafka's, or a line of its log. Out: a Refusal, with a SQLSTATE and what to look at.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from confluent_kafka import KafkaError


class Step(NamedTuple):
    """A step on the way to an answer: its name, the SQLSTATE of an error at it, and what to look at then."""

    name: str
    sqlstate: str
    hint: str | None = None


class Refusal(NamedTuple):
    """What was said, and at which step."""

    step: Step
    text: str

    def __str__(self) -> str:
        return f"Kafka's {self.step.name} failed: {self.text}"

    @property
    def weight(self) -> int:
        """Return how much it tells: where several brokers are tried, the one that came furthest tells most."""
        return _FURTHEST.index(self.step.name) if self.step.name in _FURTHEST else len(_FURTHEST)


CONNECTION = Step(
    "connection", "08006", "See whether the brokers run, and add_broker() names them as this server reaches them."
)
RESOLUTION = Step("name resolution", "08001", "The host's name is not known to this server.")
TLS = Step(
    "TLS",
    "08001",
    "Look at ssl.ca.location, the client's certificate and key, and whether security.protocol is what the port speaks.",
)
TLS_WANTED = Step("TLS", "08001", "The port hangs up on plain text: security.protocol may have to be SSL or SASL_SSL.")
AUTHENTICATION = Step("authentication", "28000", "Look at sasl.mechanism, sasl.username and sasl.password.")
SASL_WANTED = Step(
    "authentication",
    "28000",
    "The port hangs up on a request: security.protocol may have to be SASL_PLAINTEXT or SASL_SSL.",
)
_MAY_NOT = Step("authorization", "42501", "Kafka's ACLs do not let this user do that.")
TOPIC = Step("authorization", "42501", "Kafka's ACLs do not let this user at the topic.")
GROUP = Step("authorization", "42501", "Kafka's ACLs do not let this user at the group.")
PROPERTIES = Step("properties", "22023", "SELECT * FROM pipeline_kafka.properties_shown shows those that are set.")
NO_BROKER = Refusal(Step("connection", "55000", "pipeline_kafka.add_broker() names one."), "no broker is configured")
COORDINATOR = Step(
    "coordinator",
    "57P03",
    "See whether each partition of topic __consumer_offsets has a leader, and give it a longer timeout.",
)
_GROUP_ID = Step("look-up", "22023")
_GROUPS = Step("look-up", "42704", "groups() shows those there are.")
_UNSTABLE = Step("offsets", "55006", "A transaction that commits offsets of it has not ended.")
_REQUEST = Step("request", "58000")
_TOPICS = Step("look-up", "42704", "topics() shows those there are.")
_PARTITIONS = Step("look-up", "42704", "topic_partitions() shows those there are.")

_FURTHEST = ("connection", "name resolution", "TLS", "authentication")

REFUSED = _FURTHEST.index("TLS")  # the weight from which on it is no use to try again

_BY_CODE = {
    KafkaError._RESOLVE: RESOLUTION,
    KafkaError._SSL: TLS,
    KafkaError._AUTHENTICATION: AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED: AUTHENTICATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: GROUP,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _MAY_NOT,
    KafkaError.UNKNOWN_TOPIC_OR_PART: _TOPICS,
    KafkaError._UNKNOWN_TOPIC: _TOPICS,
    KafkaError._UNKNOWN_PARTITION: _PARTITIONS,
    KafkaError.INVALID_GROUP_ID: _GROUP_ID,
    KafkaError.GROUP_ID_NOT_FOUND: _GROUPS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE: COORDINATOR,
    KafkaError.NOT_COORDINATOR: COORDINATOR,
    KafkaError._WAIT_COORD: COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT: _UNSTABLE,
}
# Errors that do not say why: what was heard before them does.
VAGUE = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)

# How librdkafka ends a line about a connection: how long it was in which state (rd_kafka_broker_set_error()).
_STATE = re.compile(r"\(after (\d+)ms in state (\w+)")
_AT_ONCE = 1000  # ms: a connection that lasted longer was not refused, but has ended


def of_error(error: KafkaError) -> Refusal:
    """Return an error of librdkafka's as a refusal."""
    text = error.str()
    if error.code() == KafkaError._INVALID_ARG:  # a client that cannot be made
        return Refusal(TLS if "ssl." in text else PROPERTIES, text)
    step = _BY_CODE.get(error.code())
    if step is None:
        step = of_connection(text) if error.code() in VAGUE else _REQUEST
    return Refusal(step, text)


def of_log(line: str) -> Refusal:
    """Return a line of librdkafka's log about a connection as a refusal: who just hangs up is told of nowhere else."""
    text = line.rpartition("]: ")[2]
    return Refusal(of_connection(text), text)


def of_connection(text: str) -> Step:
    """Return the step at which a connection was when it failed, by what librdkafka says of that."""
    if "SSL alert" in text or "SSL routines" in text or "SSL handshake" in text:
        return TLS
    found = _STATE.search(text)
    duration, state = (int(found[1]), found[2]) if found else (0, "")
    if state.startswith("AUTH"):
        return AUTHENTICATION
    closed = "closed by peer" in text and duration < _AT_ONCE
    if closed and state == "APIVERSION_QUERY":
        return TLS_WANTED
    if closed and state == "UP":
        return SASL_WANTED
    return CONNECTION

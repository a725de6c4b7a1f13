"""How this extension's clients of Kafka are configured, and closed.

In: brokers and librdkafka properties from the catalog. Out: configuration for confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

Settings = dict[str, Any]  # by librdkafka's names, and confluent-kafka's error_cb and logger

# What exactly-once rests on: the worker sets these, and a user's property of the same name is refused.
OWNED = {
    "group.id": "it is consume_begin()'s group_id",
    "group.instance.id": "it names the worker's slot",
    "group.protocol": "static members need the classic protocol",
    "bootstrap.servers": "use add_broker()",
    "metadata.broker.list": "use add_broker()",
    "enable.auto.commit": "offsets are committed after the rows",
    "enable.auto.offset.store": "offsets are kept in PostgreSQL",
    "auto.offset.reset": "use consume_begin()'s start_offset and on_offset_lost",
    "enable.partition.eof": "the worker needs it to see the end of a partition",
    "partition.assignment.strategy": "workers of one group must agree on it",
    "allow.auto.create.topics": "reading must not make topics",
}

CLOSE_WAIT = 3.0  # seconds
LANE_KBYTES = 8_192  # what a lane prefetches at the most

# Defaults that a property may override. Prefetched messages are bounded for the client as a whole, however many
# partitions it has: queued.max.messages.kbytes, plus one fetch answer under way for each broker. While the queue is
# full librdkafka looks again after fetch.queue.backoff.ms; its default of a second would leave the queue empty.
_DEFAULTS: Settings = {
    "isolation.level": "read_committed",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 500,  # how soon a member hears that another has come or gone, and hands over
    "max.poll.interval.ms": 300_000,
    "queued.max.messages.kbytes": 16_384,
    "queued.min.messages": 100_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.max.bytes": 8_388_608,
    "fetch.message.max.bytes": 1_048_576,
    "fetch.error.backoff.ms": 100,
    "fetch.wait.max.ms": 1_000,  # the broker answers at once when there is a message: this is the idle pace
    "topic.metadata.refresh.interval.ms": 10_000,
    "reconnect.backoff.max.ms": 2_000,
    "socket.keepalive.enable": True,
    "statistics.interval.ms": 0,
    "client.id": "pipeline_kafka",
}


def base_settings(brokers: Iterable[str], properties: Iterable[tuple[str, str]]) -> Settings:
    """Return what every client needs: where Kafka is, and the user's properties, verbatim."""
    return {**dict(properties), "bootstrap.servers": ",".join(brokers), "allow.auto.create.topics": False}


def consumer_settings(
    brokers: Iterable[str],
    properties: Iterable[tuple[str, str]],
    group: str,
    member: str | None,
    heard: Settings,
) -> Settings:
    """Return the settings of a consumer; ``member`` is its name in the group (group.instance.id), None outside it.

    ``heard`` are those of an Ear.
    """
    own = {"group.instance.id": member} if member else {"queued.max.messages.kbytes": LANE_KBYTES}
    return {
        **_DEFAULTS,
        **base_settings(brokers, properties),
        "group.id": group,
        **own,
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        **heard,
    }


def admin_client(brokers: Iterable[str], properties: Iterable[tuple[str, str]], heard: Settings) -> AdminClient:
    """Return a client for what is asked beside the messages: metadata and offsets.

    ``heard`` are the settings of an Ear, which gets why a broker cannot be reached: a request that timed out does not
    tell.
    """
    return AdminClient({**base_settings(brokers, properties), **heard})


def close(consumer: Consumer) -> None:
    """Close a consumer, which is left to do so alone where it takes longer than CLOSE_WAIT.

    It waits for a commit that a lost Kafka did not answer as long as for any request (socket.timeout.ms, a minute).
    """
    closing = Thread(target=consumer.close, name="closing", daemon=True)
    closing.start()
    closing.join(CLOSE_WAIT)


def error_of(exception: KafkaException) -> KafkaError:
    """Return the KafkaError that a KafkaException carries."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error

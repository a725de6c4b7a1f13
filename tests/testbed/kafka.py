"""What tests do to a Kafka cluster, whoever runs it: topics, messages, watermarks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as ReadMessage
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.testbed.wait import wait_until

Value = bytes | str | None
Message = Value | tuple[Value, Value]

TIMEOUT = 30


class Kafka:
    """A Kafka cluster known by its bootstrap servers (``host:port,…``). Its methods raise KafkaException."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def admin(self) -> AdminClient:
        """A new administrative client; keep it referenced until its futures have resolved."""
        return AdminClient(self._client())

    def answers(self, timeout: float = 1) -> bool:
        """Does a broker give its metadata within ``timeout`` s?"""
        try:
            return bool(self.admin().list_topics(timeout=timeout).brokers)
        except KafkaException:
            return False

    # -- topics -----------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic, wait until it can be written to, and return its name."""
        admin = self.admin()
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([new])[name].result(TIMEOUT)
        _wait_partitions(admin, name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone; nothing happens when there is none."""
        admin = self.admin()
        try:
            admin.delete_topics([name])[name].result(TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        _wait_partitions(admin, name, 0)

    def add_partitions(self, name: str, total: int) -> None:
        """Make a topic have ``total`` partitions, and wait until they can be written to: its broker may be starting."""
        admin = self.admin()
        wait_until(
            lambda: _add_partitions(admin, name, total),
            f"{name} has {total} partitions",
            2 * TIMEOUT,
            accept=lambda error: error is None,
        )
        _wait_partitions(admin, name, total)

    # -- messages ---------------------------------------------------------------------------------

    def producer(self, **config: Any) -> Producer:
        """A new idempotent producer; ``config`` has librdkafka's properties with _ for a dot."""
        properties = {name.replace("_", "."): value for name, value in config.items()}
        return Producer(self._client({"linger.ms": 5, "enable.idempotence": True} | properties))

    def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        partition: int | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        **config: Any,
    ) -> int:
        """Send values, or (key, value) pairs, in order, and return how many once all are acknowledged.

        ``partition`` takes them all, else the key decides (without one they are spread). ``config`` is
        for the producer.
        """
        producer = self.producer(**config)
        # Once connected, librdkafka gets its idempotent producer's id at once, not at its next 1 s timer.
        producer.list_topics(topic, timeout=TIMEOUT)
        deliveries = _Deliveries()
        options: dict[str, Any] = {"on_delivery": deliveries.note}
        options |= {} if partition is None else {"partition": partition}
        options |= {} if headers is None else {"headers": headers}
        for message in messages:
            key, value = message if isinstance(message, tuple) else (None, message)
            _send(producer, topic, value=value, key=key, **options)
        unsent = producer.flush(TIMEOUT)
        if deliveries.failure is not None:
            raise KafkaException(deliveries.failure)
        if unsent:
            raise TimeoutError(f"{unsent} messages for {topic} were not acknowledged in {TIMEOUT} s")
        return deliveries.count

    def messages(self, topic: str, timeout: float = TIMEOUT) -> list[ReadMessage]:
        """All committed messages of a topic, partition by partition in offset order."""
        with closing(Consumer(self._reader())) as consumer:
            left = set(_partitions(consumer, topic))
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in left])
            found: list[ReadMessage] = []
            deadline = time.monotonic() + timeout
            while left and time.monotonic() < deadline:
                if (message := consumer.poll(0.2)) is None:
                    continue
                if (error := message.error()) is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
        if left:
            raise TimeoutError(f"topic {topic} was not read to the end of partitions {sorted(left)} in {timeout:g} s")
        return sorted(found, key=lambda m: (m.partition(), m.offset()))

    def high_watermarks(self, topic: str) -> dict[int, int]:
        """The high watermark of each partition: the offset the next message gets."""
        with closing(Consumer(self._reader())) as consumer:
            return {
                p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=TIMEOUT)[1]
                for p in _partitions(consumer, topic)
            }

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The offsets a consumer group has committed to Kafka, for the partitions that have one."""
        with closing(Consumer(self._reader() | {"group.id": group})) as consumer:
            asked = [TopicPartition(topic, p) for p in _partitions(consumer, topic)]
            return {tp.partition: tp.offset for tp in consumer.committed(asked, timeout=TIMEOUT) if tp.offset >= 0}

    # -- parts ------------------------------------------------------------------------------------

    def _client(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Properties for a client that reconnects fast and keeps its complaints to itself."""
        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 2}
        return {"bootstrap.servers": self.bootstrap} | quick | dict(config or {})

    def _reader(self) -> dict[str, Any]:
        return self._client(
            {
                "group.id": "testbed-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )


class _Deliveries:
    """How many messages were acknowledged, and what became of one that was not."""

    def __init__(self) -> None:
        self.count = 0
        self.failure: KafkaError | None = None

    def note(self, error: KafkaError | None, _: ReadMessage) -> None:
        """librdkafka's delivery report."""
        if error is None:
            self.count += 1
        else:
            self.failure = error


def _send(producer: Producer, topic: str, **options: Any) -> None:
    """Hand one message to the producer, waiting for room in its queue."""
    while True:
        try:
            producer.produce(topic, **options)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _partitions(client: AdminClient | Consumer, topic: str) -> list[int]:
    """The partitions of a topic that have a leader; none for a topic that is not there."""
    found = client.list_topics(topic, timeout=TIMEOUT).topics[topic]
    return sorted(p for p, metadata in found.partitions.items() if metadata.leader >= 0)


def _add_partitions(admin: AdminClient, name: str, total: int) -> KafkaException | None:
    """Ask for so many partitions; None where they are there, also by a request whose answer got lost."""
    try:
        admin.create_partitions([NewPartitions(name, total)], request_timeout=TIMEOUT / 4)[name].result(TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
            return error
    return None


def _wait_partitions(admin: AdminClient, topic: str, count: int) -> None:
    wait_until(lambda: len(_partitions(admin, topic)) == count, f"topic {topic} has {count} partitions", TIMEOUT)

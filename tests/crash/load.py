"""A load: a thread that produces numbered rows, and knows what Kafka has acknowledged.

In: a Kafka cluster and a topic. Out: objects {"n": 0}, {"n": 1}, … over all partitions in turn; their count and sum.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

from tests.testbed.kafka import Kafka

BURST_EVERY = 0.02  # seconds
FLUSH = 60  # seconds the last rows may take to be acknowledged: a broker may be starting again

Row = Callable[[int], str]


def numbered(n: int) -> str:
    """The usual row."""
    return json.dumps({"n": n})


class Sent:
    """What a topic holds: the numbers from 0 on, each once. ``count`` of them, ``sum`` of them."""

    def __init__(self, topic: str, count: int = 0) -> None:
        self.topic = topic
        self.count = count
        self.sum = count * (count - 1) // 2


class Load(Sent):
    """Produces ``rate`` rows a second from ``with`` to its end, through outages too.

    After it, ``count`` and ``sum`` are those of the numbers that Kafka holds, each of them once: the producer is
    idempotent, and the end of ``with`` raises TimeoutError where a row is not acknowledged within FLUSH s,
    RuntimeError where one was refused.
    """

    def __init__(self, kafka: Kafka, topic: str, rate: int = 2000, row: Row = numbered) -> None:
        super().__init__(topic)
        self._kafka = kafka
        self._row = row
        self._burst = max(1, int(rate * BURST_EVERY))
        self._failure: KafkaError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load of {topic}", daemon=True)
        self._unsent = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """What the end of ``with`` does; a second time nothing happens."""
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise RuntimeError(f"a row for {self.topic} was refused: {self._failure}")
        if self._unsent:
            raise TimeoutError(f"{self._unsent} rows for {self.topic} were not acknowledged in {FLUSH} s")

    def _run(self) -> None:
        producer = self._kafka.producer()
        partitions = len(producer.list_topics(self.topic, timeout=FLUSH).topics[self.topic].partitions)
        numbers = itertools.count()
        while not self._stopping.wait(BURST_EVERY):
            for n in itertools.islice(numbers, self._burst):
                self._send(producer, n, n % partitions)
            producer.poll(0)
        self._unsent = producer.flush(FLUSH)

    def _send(self, producer: Producer, n: int, partition: int) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failure = error
                return
            self.count += 1
            self.sum += n

        producer.produce(self.topic, self._row(n), partition=partition, on_delivery=delivered)

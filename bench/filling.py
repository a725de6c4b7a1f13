"""Topics filled as fast as one Python process can.

In: values. Out: a topic that holds them, spread evenly over its partitions, uncompressed.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from tests.testbed.kafka import Kafka

Message = tuple[str, int, bytes]  # topic, partition, value
FLUSH = 120  # seconds
# Written in large batches, as a busy producer does. No compression: no codec is what is measured.
_PRODUCER = {
    "linger_ms": 20,
    "batch_size": 1_000_000,
    "compression_type": "none",
    "queue_buffering_max_messages": 500_000,
}


def fill(kafka: Kafka, topic: str, partitions: int, values: Iterable[bytes]) -> int:
    """Create a topic and send each value to the next partition in turn; return how many, once all are there.

    Raises RuntimeError where the topic does not hold as many as were sent.
    """
    kafka.create_topic(topic, partitions)
    count = produce(kafka, ((topic, number % partitions, value) for number, value in enumerate(values)))
    held = sum(kafka.high_watermarks(topic).values())
    if held != count:
        raise RuntimeError(f"topic {topic} holds {held} of {count} messages")
    return count


def produce(kafka: Kafka, messages: Iterable[Message]) -> int:
    """Send messages and return how many. Raises RuntimeError where the broker does not take all within FLUSH."""
    producer = kafka.producer(**_PRODUCER)
    count = 0
    for message in messages:
        send(producer, *message)
        count += 1
    if unsent := producer.flush(FLUSH):
        raise RuntimeError(f"{unsent} of {count} messages were not sent in {FLUSH} s")
    return count


def send(producer: Producer, topic: str, partition: int, value: bytes) -> None:
    """Hand one message to a producer, waiting for room in its queue."""
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.05)
        else:
            return

"""A load of good and bad messages, and a ledger of what Kafka holds of it.

In: a Kafka cluster, a topic, and a maker of messages. Out: for each (partition, offset) the message's number and fate.

The places are read from the topic: a producer that is told only at its second try that Kafka has a message already may
not learn where.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from enum import Enum

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.crash.load import BURST_EVERY, FLUSH
from tests.testbed.kafka import Kafka

METADATA_WAIT = 2  # seconds


class Fate(Enum):
    """What relations must do with a message: SPLIT is for one that a strict relation refuses and another takes."""

    GOOD = "good"
    SPLIT = "split"
    BAD = "bad"
    NULL = "null"


UNWANTED = "unwanted"  # what a strict relation refuses
SHARES = {Fate.GOOD: 94, Fate.SPLIT: 2, Fate.BAD: 2, Fate.NULL: 2}  # in 100

Value = str | bytes | None
Maker = Callable[[int, Fate, random.Random], Value]
Entry = tuple[int, int, int, str]  # partition, offset, number, fate


def json_message(n: int, fate: Fate, rng: random.Random) -> Value:
    """An object {"n": …, "word": …} with the fate wanted."""
    if fate is Fate.NULL:
        return None
    if fate is Fate.BAD:
        wrong: list[Value] = [f'{{"n": {n}', f'{{"n": "{n}x"}}', "", f'"{n}"', b'{"n": %d, "word": "\xff"}' % n]
        return rng.choice(wrong)
    return json.dumps({"n": n, "word": UNWANTED if fate is Fate.SPLIT else f"word {n}"})


def text_message(n: int, fate: Fate, rng: random.Random) -> Value:
    """A line of two columns with the fate wanted."""
    if fate is Fate.NULL:
        return None
    if fate is Fate.BAD:
        wrong: list[Value] = [f"{n}", f"{n}x\tword", "", f"{n}\tword\tmore", "\\.", f"{n}\tword\\", b"%d\t\xff" % n]
        return rng.choice(wrong)
    return f"{n}\t{UNWANTED if fate is Fate.SPLIT else f'word {n}'}"


class MixedLoad:
    """Produces ``rate`` messages a second from start() to stop(), through outages too, over ``partitions`` in turn.

    The producer is idempotent: each message is there once. ``partitions`` may grow.
    """

    def __init__(self, kafka: Kafka, topic: str, maker: Maker, partitions: int, rate: int, seed: str) -> None:
        self.topic = topic
        self.partitions = partitions
        self._kafka = kafka
        self._maker = maker
        self._burst = max(1, int(rate * BURST_EVERY))
        self._pause = self._burst / rate
        self._fates: dict[int, Fate] = {}  # of what Kafka has acknowledged, by number
        self._rng = random.Random(seed)
        self._failure: KafkaError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load of {topic}", daemon=True)
        self._known = 0
        self._n = 0
        self._unsent = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, once Kafka has acknowledged all.

        Raises TimeoutError where that takes longer than FLUSH s, RuntimeError where Kafka refused a message.
        """
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise RuntimeError(f"a message for {self.topic} was refused: {self._failure}")
        if self._unsent:
            raise TimeoutError(f"{self._unsent} messages for {self.topic} were not acknowledged in {FLUSH} s")

    def ledger(self) -> list[Entry]:
        """Read the topic. Raises RuntimeError where it does not hold what was acknowledged, each message once."""
        found = [_place(message) for message in self._kafka.messages(self.topic)]
        if sorted(number for _, _, number in found) != sorted(self._fates):
            raise RuntimeError(
                f"{self.topic} holds {len(found)} messages, which are not the {len(self._fates)} it took"
            )
        return [(partition, offset, number, self._fates[number].value) for partition, offset, number in found]

    def _run(self) -> None:
        producer = self._kafka.producer()
        while not self._stopping.wait(self._pause):
            if self._known < self.partitions:
                self._look(producer)
            elif self._known:
                for _ in range(self._burst):
                    self._send(producer)
            producer.poll(0)
        self._unsent = producer.flush(FLUSH)

    def _look(self, producer: Producer) -> None:
        """Learn of new partitions; what is sent to one that the producer does not know is refused."""
        try:
            topic = producer.list_topics(self.topic, timeout=METADATA_WAIT).topics[self.topic]
        except KafkaException:
            return  # no broker just now
        self._known = len(topic.partitions)

    def _send(self, producer: Producer) -> None:
        number, self._n = self._n, self._n + 1
        (fate,) = self._rng.choices(list(SHARES), weights=list(SHARES.values()))
        value = self._maker(number, fate, self._rng)

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._failure = error
                return
            self._fates[number] = fate

        producer.produce(self.topic, value, key=str(number), partition=number % self._known, on_delivery=delivered)


def _place(message: Message) -> tuple[int, int, int]:
    """Return a message's partition, offset and number."""
    return message.partition() or 0, message.offset() or 0, int(message.key() or b"")

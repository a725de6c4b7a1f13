"""A fuzz run of one format: good and mutated messages are sent, read, and accounted for one by one.

In: a database and a Kafka cluster, a format, a seed, how many. Out: what is wrong; nothing where all is accounted for.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from tests.fuzz.formats import FORMATS, SETUP, Format
from tests.fuzz.mutate import TOKENS, mutate
from tests.integration.flow import Flow
from tests.testbed.cluster import Cluster

GOOD = 0.3  # the share of messages that are left as they are
NULLS = 0.02
KEYED = 0.2  # the share with a key and headers, good or not
PARTITIONS = 3
LONGEST = 900_000  # bytes of a message: Kafka takes a megabyte
FLUSH = 120  # seconds
STUCK = 60  # seconds without a message passed

Place = tuple[int, int]  # partition, offset
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One message; ``identity`` is that of its row where it was left as it is."""

    value: bytes | None
    key: bytes | None
    identity: str | None


Ledger = dict[Place, Sent]


class Fuzz:
    """Runs in one database, whose worker must live through all of it."""

    def __init__(self, flow: Flow, cluster: Cluster, seed: int) -> None:
        self.flow = flow
        self._cluster = cluster
        self._seed = seed
        flow.admin.execute(SETUP)
        flow.admin.execute("CREATE TABLE kept (doc text)")
        flow.begin("a-topic-that-never-comes", "kept", format="raw")  # keeps the worker between formats

    def send(self, name: str, topic: str, count: int) -> Ledger:
        """Begin the format's consumers on a new topic and send it ``count`` messages."""
        for relation, target in self.relations(name):
            self.flow.admin.execute(f"CREATE TABLE {relation} ({FORMATS[name].targets[target].columns})")
            self.flow.begin(topic, relation, **FORMATS[name].settings)
        return _produce(self.flow.kafka.producer(), topic, messages(FORMATS[name], f"{self._seed} {name}", count))

    def relations(self, name: str) -> list[tuple[str, str]]:
        """The relations of a format, each with the name of its target."""
        return [(f"{name}_{target}", target) for target in FORMATS[name].targets]

    def read(self, topic: str, say: Callable[[str], None]) -> None:
        """Wait until all is read. Raises TimeoutError that says where it stands still."""
        ends = sum(self.flow.kafka.high_watermarks(topic).values())
        before: dict[str, int] = {}
        since = time.monotonic()
        while min((now := self._passed(topic)).values()) < ends:
            if now != before:
                before, since = now, time.monotonic()
                say(f"{now} of {ends}")
            elif time.monotonic() - since > STUCK:
                raise TimeoutError(f"{now} of {ends} messages passed; {self._why(topic)}")
            time.sleep(0.5)

    def _passed(self, topic: str) -> dict[str, int]:
        """How many messages of a topic each relation's consumer has passed."""
        rows = self.flow.rows(
            """SELECT c.relation::text, coalesce(sum(o.next_offset), 0)::bigint FROM pipeline_kafka.consumers c
               LEFT JOIN pipeline_kafka.offsets o ON o.consumer_id = c.id WHERE c.topic = %s GROUP BY 1""",
            topic,
        )
        return dict(rows)

    def _why(self, topic: str) -> list[tuple[object, ...]]:
        return self.flow.rows(
            """SELECT s.relation::text, s.state, s.last_sqlstate, s.last_error,
                      (SELECT array_agg((o.partition, o.next_offset)::text)
                       FROM pipeline_kafka.offsets o WHERE o.consumer_id = s.id)
               FROM pipeline_kafka.consumers_status s WHERE s.topic = %s""",
            topic,
        )

    # -- the worker ---------------------------------------------------------------------------------

    def life(self) -> tuple[object, ...]:
        """The worker's process, and how far the server's log goes."""
        self.flow.wait("SELECT count(*) FROM pipeline_kafka.workers_status WHERE pid IS NOT NULL", 1, "a worker runs")
        pid = self.flow.value("SELECT pid FROM pipeline_kafka.workers_status")
        return pid, self._cluster.log_size()

    def died(self, life: tuple[object, ...], topic: str) -> Iterator[str]:
        """What has befallen the worker and a topic's consumers since life()."""
        pid, since = life
        if (now := self.life()[0]) != pid:
            yield f"the worker was process {pid}, and is {now}"
        assert isinstance(since, int)
        said = self._cluster.log(since)
        yield from re.findall(r".*(?:starting it again|failed, next try|other active server processes).*", said)
        yield from (f"does not run: {row}" for row in self._why(topic) if row[1] != "running")


def messages(format: Format, seed: str, count: int) -> Iterator[tuple[Sent, Headers]]:
    """Yield messages, good, mutated and null; the same for the same seed."""
    rng = random.Random(seed)
    other = b""
    for number in range(count):
        value, identity = format.make(number, rng)
        key, headers = _extras(rng) if rng.random() < KEYED else (None, [])
        drawn = rng.random()
        if drawn < NULLS:
            yield Sent(None, key, None), headers
        elif drawn < NULLS + GOOD:
            yield Sent(value, key, identity), headers
        else:
            yield Sent(mutate(value, other, rng)[:LONGEST], key, None), headers
        other = value


def _extras(rng: random.Random) -> tuple[bytes, Headers]:
    """A key and headers of all kinds."""
    values: list[str | bytes | None] = ["text", b"", None, *rng.sample(TOKENS, k=3), rng.randbytes(5)]
    names = ["h", "", "häder", "a\tb", 'q"uote', "back\\slash"]
    headers: Headers = [(rng.choice(names), rng.choice(values)) for _ in range(rng.randint(0, 3))]
    return rng.choice([b"key", b"k\xc3\xa4y", b"", rng.choice(TOKENS), rng.randbytes(8)]), headers


def _produce(producer: Producer, topic: str, sending: Iterator[tuple[Sent, Headers]]) -> Ledger:
    """Send messages over all partitions in turn; return them by their place. Raises RuntimeError."""
    ledger: Ledger = {}
    refused: list[str] = []

    def note(sent: Sent) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error.str())
            else:
                ledger[message.partition() or 0, message.offset() or 0] = sent

        return delivered

    for number, (sent, headers) in enumerate(sending):
        while len(producer) > 10_000:
            producer.poll(0.05)
        to = number % PARTITIONS
        producer.produce(topic, sent.value, sent.key, partition=to, headers=headers, on_delivery=note(sent))
    if producer.flush(FLUSH) or refused:
        raise RuntimeError(f"not all messages for {topic} were taken: {refused[:3]}")
    return ledger

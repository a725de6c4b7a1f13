"""A thousand consumers of a thousand topics, by one worker.

In: the stage. Out: milliseconds that consume_begin() takes, and the cost of a message beside that of one consumer; and
the same of the COPYs alone, by a client that has the rows already, which is what a thousand relations cost anybody.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from statistics import median

from confluent_kafka.cimpl import NewTopic

from bench import consuming, sample
from bench.filling import Message, produce
from bench.result import Result
from bench.stage import Stage
from tests.testbed.kafka import Kafka

NAMES = ("many-begin", "many-cost", "many-copy")
CONSUMERS = 1_000
BATCH = 25_000  # rows a transaction of the COPYs alone, as many as a worker's batch has
ANSWER = 60  # seconds


def measure(stage: Stage, names: Collection[str]) -> list[Result]:
    """Begin them one by one, fill their topics while they are ended, and let them catch up; then the same with one."""
    consumers = int(stage.scale.part(CONSUMERS, least=50))
    each = stage.scale.rows // consumers
    begins, many, wrong = _run(stage, "many", consumers, each)
    _, one, also_wrong = _run(stage, "one", 1, each * consumers)
    begin = median(begins) * 1000
    details = {"consumers": consumers, "messages": each * consumers, "worst_ms": max(begins) * 1000}
    return [
        Result("many-begin", begin, "ms", wrong=wrong or also_wrong, details=details),
        Result(
            "many-cost",
            1e6 / many,
            "us/message",
            ratio=one / many,
            reference="one consumer",
            wrong=wrong or also_wrong,
            details=details | {"one_us": 1e6 / one},
        ),
        _copies(stage, consumers, each),
    ]


def _run(stage: Stage, name: str, consumers: int, each: int) -> tuple[list[float], float, str | None]:
    """Return the seconds each consume_begin() took, rows/s of all consumers together, and what was wrong."""
    topics = [f"{name}_{number}" for number in range(consumers)]
    _create(stage.broker, topics)
    with stage.database(name) as database, database.connect() as connection:
        begins = [_begin(connection, topic) for topic in topics]
        consuming.wait_started(connection, consumers)
        connection.execute("SELECT pipeline_kafka.consume_end()")
        produce(stage.broker, _messages(topics, each))
        begun = consuming.now(connection)
        connection.execute("SELECT pipeline_kafka.consume_begin()")
        consuming.wait_passed(connection, topics, consumers * each)
        connection.execute("SELECT pipeline_kafka.consume_end()")
        pace = consuming.pace(connection, topics, begun)
        wrong = [found for topic in topics if (found := sample.check(connection, topic, each))]
    return begins, pace.rate, "; ".join(wrong[:3]) or None


def _copies(stage: Stage, tables: int, each: int) -> Result:
    """Return what a row costs that is copied with ``each`` into one of many tables, beside all into one."""
    batches = max(tables * each // BATCH, 1)
    rows, in_one = tables * each, batches * (BATCH // each) * each
    with stage.database("copies") as database, database.connect() as connection:
        names = [f"many_{number}" for number in range(tables)]
        for name in (*names, "one"):
            connection.execute(f"CREATE TABLE {name} ({sample.COLUMNS})")
        lines = b"".join(value + b"\n" for value in sample.values("text", each))
        many = _copy(connection, names, lines, max(BATCH // each, 1))
        one = _copy(connection, ["one"] * batches, lines * (BATCH // each), 1)
        wrong = [found for name in names if (found := sample.check(connection, name, each))]
    return Result(
        "many-copy",
        many / rows * 1e6,
        "us/row",
        ratio=(many / rows) / (one / in_one),
        reference="COPY into one",
        wrong="; ".join(wrong[:3]) or None,
        details={"tables": tables, "rows": rows, "one_us": one / in_one * 1e6},
    )


def _copy(connection: consuming.Connection, tables: Sequence[str], lines: bytes, together: int) -> float:
    """Copy the same lines into each table, so many ``together`` in a transaction; return the seconds."""
    begun = time.monotonic()
    for first in range(0, len(tables), together):
        with connection.transaction(), connection.cursor() as cursor:
            for table in tables[first : first + together]:
                with cursor.copy(f"COPY {table} FROM STDIN") as copy:
                    copy.write(lines)
    return time.monotonic() - begun


def _messages(topics: Sequence[str], each: int) -> Iterator[Message]:
    """The same rows for every topic, as if all were written to at the same time."""
    for value in sample.values("text", each):
        for topic in topics:
            yield topic, 0, value


def _begin(connection: consuming.Connection, topic: str) -> float:
    connection.execute(f"CREATE TABLE {topic} ({sample.COLUMNS})")
    begun = time.monotonic()
    consuming.begin(connection, topic, topic)
    return time.monotonic() - begun


def _create(kafka: Kafka, topics: Sequence[str]) -> None:
    admin = kafka.admin()
    created = admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1) for topic in topics])
    for future in created.values():
        future.result(ANSWER)

"""How long one message takes from produce() to a client that listens for its row.

In: the stage. Out: p50 and p99 in milliseconds, over 90 partitions, one message at a time.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from statistics import quantiles
from typing import Any

import psycopg

from bench import consuming
from bench.result import Result
from bench.stage import Stage

NAMES = ("latency-p50", "latency-p99")
PARTITIONS = 90
MESSAGES = 2_000
WARM_UP = 100  # of each partition's first fetch, of plans and caches
PATIENCE = 30.0  # seconds
TOPIC = TABLE = "pings"
_TABLE = f"""
CREATE TABLE {TABLE} (id bigint PRIMARY KEY);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('landed', NEW.id::text);
    RETURN NULL;
END $$;
CREATE TRIGGER tell AFTER INSERT ON {TABLE} FOR EACH ROW EXECUTE FUNCTION tell();
LISTEN landed;
"""


def measure(stage: Stage, names: Collection[str]) -> list[Result]:
    """Send one message after the other, each when the one before is known to be in."""
    count = int(stage.scale.part(MESSAGES, least=200))
    stage.broker.create_topic(TOPIC, PARTITIONS)
    with stage.database("latency") as database, database.connect() as connection:
        connection.execute(_TABLE)
        consuming.begin(connection, TOPIC, TABLE)
        consuming.wait_partitions(connection, TABLE, PARTITIONS)
        times = _ping(stage, connection, WARM_UP + count)[WARM_UP:]
        wrong = _check(connection, WARM_UP + count)
    percentiles = quantiles(times, n=100, method="inclusive")
    details = {"messages": count, "max": max(times), "mean": sum(times) / count}
    return [
        Result("latency-p50", percentiles[49], "ms", wrong=wrong, details=details),
        Result("latency-p99", percentiles[98], "ms", wrong=wrong, details=details),
    ]


def _ping(stage: Stage, connection: psycopg.Connection[Any], count: int) -> list[float]:
    producer = stage.broker.producer(linger_ms=0)
    times = []
    for number in range(count):
        sent = time.perf_counter()
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        _wait_for(connection, number)
        times.append((time.perf_counter() - sent) * 1000)
        producer.poll(0)
    return times


def _wait_for(connection: psycopg.Connection[Any], number: int) -> None:
    for notification in connection.notifies(timeout=PATIENCE, stop_after=1):
        if notification.payload == str(number):
            return
        raise RuntimeError(f"row {notification.payload} came in where {number} was waited for")
    raise TimeoutError(f"message {number} was not in after {PATIENCE:g} s")


def _check(connection: psycopg.Connection[Any], count: int) -> str | None:
    found = connection.execute(f"SELECT count(*), coalesce(sum(id), 0) FROM {TABLE}").fetchone()
    expected = (count, count * (count - 1) // 2)
    return None if found == expected else f"{TABLE} holds count and sum {found}, not {expected}"

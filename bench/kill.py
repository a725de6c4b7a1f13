"""How soon the next row is in after a worker was killed.

In: the stage. Out: seconds from kill -9 to the commit of a message sent just after it, the median of five.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from statistics import median

from bench import consuming
from bench.filling import send
from bench.result import Result
from bench.stage import PARTITIONS, Stage
from tests.testbed.wait import wait_until

NAMES = ("kill",)
KILLS = 5
PATIENCE = 60.0  # seconds
TOPIC = TABLE = "survivors"


def measure(stage: Stage, names: Collection[str]) -> list[Result]:
    """Kill the worker again and again: the pauses before it is started again grow, as for one that crashes."""
    stage.broker.create_topic(TOPIC, PARTITIONS)
    with stage.database("kills") as database, database.connect() as connection:
        connection.execute(f"CREATE TABLE {TABLE} (id bigint)")
        consuming.begin(connection, TOPIC, TABLE)
        consuming.wait_partitions(connection, TABLE, PARTITIONS)
        times = [_kill(stage, connection, number) for number in range(KILLS)]
        found = connection.execute(f"SELECT array_agg(id ORDER BY id) FROM {TABLE}").fetchone()
    wrong = None if found == (list(range(KILLS)),) else f"{TABLE} holds {found}, not each of {KILLS} rows once"
    note = ", ".join(f"{seconds:.2f}" for seconds in times)
    return [Result("kill", median(times), "s", wrong=wrong, note=note, details={"times": times})]


def _kill(stage: Stage, connection: consuming.Connection, number: int) -> float:
    pids = wait_until(lambda: consuming.worker_pids(connection, 1), "the worker has partitions", PATIENCE)
    producer = stage.broker.producer(linger_ms=0)
    producer.list_topics(TOPIC)
    killed = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    send(producer, TOPIC, number % PARTITIONS, str(number).encode())
    producer.flush(PATIENCE)
    consuming.wait_passed(connection, [TABLE], number + 1, PATIENCE)
    return consuming.last_commit(connection, TABLE).timestamp() - killed

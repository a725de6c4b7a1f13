"""How much memory a worker takes when much waits for it.

In: the stage. Out: the peak of the worker's resident memory (VmHWM), in MB, with 2 GB waiting on 90 partitions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress

from bench import consuming
from bench.filling import fill
from bench.processes import peak_memory
from bench.result import Result
from bench.stage import Stage

NAMES = ("memory",)
PARTITIONS = 90
WAITING = 2_000_000_000  # bytes
SIZES = (1_000, 2_000)  # bytes of a message, from and to
LONGEST = 60.0  # seconds it is read for
TOPIC = TABLE = "wide"


def measure(stage: Stage, names: Collection[str]) -> list[Result]:
    """Fill a topic, then let a fresh worker read it: all of it, or as much as it can in LONGEST."""
    waiting = stage.scale.part(WAITING, least=80_000_000)
    count = int(waiting / (sum(SIZES) / 2))
    fill(stage.broker, TOPIC, PARTITIONS, _values(count))
    with stage.database("memory") as database, database.connect() as connection:
        connection.execute(f"CREATE TABLE {TABLE} (id bigint, body text)")
        begun = time.monotonic()
        consuming.begin(connection, TOPIC, TABLE, format="json")
        with suppress(TimeoutError):
            consuming.wait_passed(connection, [TABLE], count, patience=LONGEST)
        (child,) = consuming.worker_pids(connection)
        peak = peak_memory(child) / 1_000_000
        seconds = time.monotonic() - begun
        consuming.end(connection, TOPIC, TABLE)
        taken, wrong = _check(connection)
    stage.broker.delete_topic(TOPIC)
    details = {"waiting_MB": waiting / 1e6, "messages": taken, "of": count, "seconds": seconds}
    return [Result("memory", peak, "MB", wrong=wrong, note=f"{taken:,} of {count:,} messages", details=details)]


def _values(count: int) -> Iterator[bytes]:
    """JSON of the sizes wanted, hardly compressible, so that TOAST has nothing to save."""
    smallest, largest = SIZES
    noise = "".join(f"{number * 2654435761 % 2**32:08x}" for number in range(largest // 8 + 1))
    for number in range(count):
        size = smallest + number * 7919 % (largest - smallest)
        yield b'{"id":%d,"body":"%b"}' % (number, noise[:size].encode())


def _check(connection: consuming.Connection) -> tuple[int, str | None]:
    """Return how many messages were passed, and what is wrong with the rows: each must be there once."""
    taken = consuming.passed(connection, [TABLE])
    found = connection.execute(f"SELECT count(*), count(DISTINCT id) FROM {TABLE}").fetchone()
    return taken, None if found == (taken, taken) else f"{taken} messages passed, rows and different ids: {found}"

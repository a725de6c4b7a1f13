"""What a worker costs that has nothing to do.

In: the stage. Out: percent of a core, of the worker and the server's processes that serve it, at 1,000 partitions.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from bench import consuming
from bench.processes import Meter
from bench.result import Result
from bench.stage import Stage

NAMES = ("idle",)
PARTITIONS = 1_000
SECONDS = 30.0
SETTLE = 5.0  # seconds after the assignment


def measure(stage: Stage, names: Collection[str]) -> list[Result]:
    """Let a worker with a consumer of one empty topic idle."""
    seconds = stage.scale.part(SECONDS, least=5)
    stage.broker.create_topic("silence", PARTITIONS)
    with stage.database("idle") as database, database.connect() as connection:
        connection.execute("CREATE TABLE silence (line text)")
        consuming.begin(connection, "silence", "silence")
        consuming.wait_partitions(connection, "silence", PARTITIONS)
        time.sleep(SETTLE)
        meter = Meter(worker=consuming.worker_pids(connection), server=consuming.backend_pids(connection))
        time.sleep(seconds)
        used = {name: cpu / seconds * 100 for name, cpu in meter.used().items()}
    note = f"worker {used['worker']:.1f}, server's backends {used['server']:.1f}"
    return [Result("idle", sum(used.values()), "% of a core", note=note, details=used | {"seconds": seconds})]

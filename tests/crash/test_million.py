"""Many rows through two workers into two tables, while one of them is killed every 2 s."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.crash.load import Sent, numbered
from tests.crash.site import Site
from tests.fix_kafka import MakeTopic

FULL = bool(os.environ.get("PIPELINE_KAFKA_FULL"))
ROWS = 1_000_000 if FULL else 100_000
KILL_EVERY = 2  # seconds
RUNNING = "SELECT pid FROM pipeline_kafka.workers_status WHERE state = 'running' AND pid IS NOT NULL ORDER BY slot"


@pytest.mark.timeout(1200)
def test_a_worker_is_killed_every_two_seconds(site: Site, topic: MakeTopic) -> None:
    name = topic(8)
    site.kafka.produce(name, map(numbered, range(ROWS)))
    begun = time.monotonic()
    site.consume(name, "t", "u", parallelism=2, batchsize=1000)
    site.progress("t", "u")
    kills = 0
    while min(site.messages("t"), site.messages("u")) < ROWS:
        if running := [pid for (pid,) in site.rows(RUNNING)]:
            os.kill(running[kills % len(running)], signal.SIGKILL)
            kills += 1
        time.sleep(KILL_EVERY)
    site.exact(Sent(name, ROWS), "t", "u")
    assert kills > 0
    print(f"{ROWS} rows twice in {time.monotonic() - begun:.0f} s, {kills} kills")

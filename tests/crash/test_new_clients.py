"""A worker that makes new clients of Kafka, as after each outage, keeps nothing of the old ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.crash.load import Sent, numbered
from tests.crash.site import Site
from tests.fix_kafka import MakeTopic
from tests.testbed.wait import wait_until

CLIENTS = 6
FEW = 6  # threads: librdkafka has one for each connection, and they come and go; a client has four or more

# A pipeline has a client of Kafka and a connection to load with.
PIPELINE = """SELECT max(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name ^@ 'pipeline_kafka loader '"""


def threads(pid: int) -> int:
    """How many threads a process has (task of proc(5))."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def other_than(old: int) -> Callable[[int | None], bool]:
    """Whether there is one, and not the old one."""
    return lambda now: now is not None and now != old


def test_the_old_clients_are_gone_with_their_threads(site: Site, topic: MakeTopic) -> None:
    name = topic(1)
    site.consume(name, "t")
    pid, pipeline, counts = site.child(), 0, []
    for number in range(CLIENTS):
        pipeline = wait_until(lambda: site.value(PIPELINE), "there is a new pipeline", accept=other_than(pipeline))
        site.kafka.produce(name, [numbered(number)])
        site.read(name)
        counts.append(threads(pid))
        site.set_property("client.id", f"client-{number}")
    wait_until(lambda: threads(pid), f"few more than {counts[0]} threads", accept=lambda now: now <= counts[0] + FEW)
    assert site.child() == pid
    site.exact(Sent(name, CLIENTS), "t")

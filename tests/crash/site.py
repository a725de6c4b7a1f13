"""What crash tests share: a database that consumes a load, ways to break it, and the exact count at the end.

In: a database and a Kafka cluster. Out: what to kill, what to wait for, an assertion that nothing is lost or doubled.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.crash.load import Load, Sent
from tests.fix_kafka import link
from tests.integration.flow import TIMEOUT, Flow
from tests.testbed.database import Database
from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until

# What makes the outages short: a dead member's partitions move after 6 s, a lost broker is looked for often.
QUICK = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "500",
    "topic.metadata.refresh.interval.ms": "2000",
}
COLUMNS = "n bigint, kafka_partition int, kafka_offset bigint"


class Site(Flow):
    """A database that consumes from a Kafka cluster, with properties that make it quick to notice an outage."""

    def __init__(self, database: Database, kafka: Kafka, bootstrap: str | None = None) -> None:
        super().__init__(database.connect(), kafka)
        self.database = database
        self.cluster = database.cluster
        link(self.admin, bootstrap or kafka.bootstrap)
        for name, value in QUICK.items():
            self.set_property(name, value)

    def close(self) -> None:
        """Close the connection."""
        self.admin.close()

    def reconnect(self, database: Database | None = None) -> None:
        """Connect anew once the server takes connections; to ``database``, where it is another one now."""
        self.close()
        self.database = database or self.database
        self.cluster = self.database.cluster
        self.cluster.wait_ready()
        self.admin = self.database.connect()

    # -- what is consumed ---------------------------------------------------------------------------

    def consume(self, topic: str, *relations: str, **settings: Any) -> None:
        """Begin to read a topic of numbered rows into new tables."""
        for relation in relations:
            self.admin.execute(f"CREATE TABLE {relation} ({COLUMNS})")
            self.begin(topic, relation, format="json", **settings)

    def load(self, topic: str, rate: int = 2000) -> Load:
        """A load on this topic, begun by ``with``."""
        return Load(self.kafka, topic, rate)

    def messages(self, relation: str) -> int:
        """How many messages have gone into a relation; a number that is kept through every outage."""
        passed: int = self.value(
            """SELECT coalesce(sum(o.messages), 0)::bigint FROM pipeline_kafka.offsets o
               JOIN pipeline_kafka.consumers c ON c.id = o.consumer_id WHERE c.relation = %s::regclass""",
            relation,
        )
        return passed

    def progress(self, *relations: str, rows: int = 1, timeout: float = TIMEOUT) -> None:
        """Wait until each of these relations has got ``rows`` more rows than now."""
        goals = {relation: self.messages(relation) + rows for relation in relations}
        for relation, goal in goals.items():
            wait_until(
                lambda relation=relation: self.messages(relation),  # type: ignore[misc]
                f"{relation} has got {goal} messages",
                timeout,
                accept=lambda messages, goal=goal: messages >= goal,  # type: ignore[misc]
            )

    def exact(self, sent: Sent, *relations: str) -> None:
        """Wait until all is read, and hold that each relation has every acknowledged row once, and no other."""
        self.read(sent.topic)
        assert sum(self.kafka.high_watermarks(sent.topic).values()) == sent.count
        for relation in relations:
            assert self.tally(relation) == (sent.count, sent.sum, sent.count), relation
        assert self.aside(sent.topic) == []

    def tally(self, relation: str) -> tuple[int, int, int]:
        """(count, sum of the numbers, count of different offsets) of a relation."""
        query = f"SELECT count(*), sum(n)::bigint, count(DISTINCT (kafka_partition, kafka_offset)) FROM {relation}"
        ((count, total, places),) = self.rows(query)
        return count, total or 0, places

    def told(self, topic: str) -> dict[int, int]:
        """The offsets that Kafka was told, by partition."""
        system = self.value("SELECT system_identifier FROM pg_control_system()")
        return self.kafka.committed(f"pipeline_kafka-{system}-{self.database.name}", topic)

    def all_told(self, topic: str) -> None:
        """Wait until Kafka's own tools see no lag of ours."""
        ends = self.kafka.high_watermarks(topic)
        wait_until(lambda: self.told(topic), f"Kafka was told {ends}", TIMEOUT, accept=lambda told: told == ends)

    # -- what is broken -----------------------------------------------------------------------------

    def child(self, slot: int = 0, but: int | None = None) -> int:
        """The process id of a slot's worker, once there is one that is not ``but``."""
        query = "SELECT max(pid) FROM pipeline_kafka.workers_status WHERE slot = %s AND state = 'running'"
        pid: int = wait_until(
            lambda: self.value(query, slot),
            f"slot {slot} is run by another process than {but}",
            TIMEOUT,
            accept=lambda pid: pid not in (None, but),
        )
        return pid

    def kill_child(self, slot: int = 0, number: signal.Signals = signal.SIGKILL) -> int:
        """kill -9 a slot's worker, or send it another signal; returns the process id it had."""
        pid = self.child(slot)
        os.kill(pid, number)
        return pid

    def wait_loading(self, event_type: str, loader: str = "%") -> None:
        """Wait until a batch is being loaded, by a loader of that name, and its session waits for such an event."""
        query = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND application_name LIKE 'pipeline_kafka loader ' || %s AND wait_event_type = %s"""
        wait_until(lambda: self.value(query, loader, event_type), f"a load waits for {event_type}", TIMEOUT)

    def end_session(self, application: str) -> None:
        """pg_terminate_backend() of one of a worker's sessions, by its application_name."""
        query = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name LIKE %s"""
        wait_until(lambda: self.value(query, application), f"{application} was there to be ended", TIMEOUT)

    def hurry(self, workers: int = 1) -> None:
        """Have children that were killed started again at once, without the pause that doubles each time."""
        self.admin.execute("SELECT pipeline_kafka.start_workers(%s)", [workers])

    def shares(self, expected: dict[int, int]) -> None:
        """Wait until the running workers have so many partitions, by slot."""
        query = "SELECT slot, partitions FROM pipeline_kafka.workers_status WHERE state = 'running'"
        wait_until(
            lambda: dict(self.rows(query)),
            f"partitions are shared {expected}",
            TIMEOUT,
            accept=lambda now: now == expected,
        )

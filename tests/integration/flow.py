"""What tests of the whole pipeline do over and over: begin, produce, wait until it was read, look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from tests.fix_cluster import Connection
from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until

Rows = list[tuple[Any, ...]]

TIMEOUT = 60  # seconds for what takes one or two on an idle machine


class Flow:
    """A database that consumes from a Kafka cluster: ``admin`` is a superuser's connection to it."""

    def __init__(self, admin: Connection, kafka: Kafka) -> None:
        self.admin = admin
        self.kafka = kafka

    # -- what a user does ---------------------------------------------------------------------------

    def begin(self, topic: str, relation: str, by: Connection | None = None, **settings: Any) -> None:
        """consume_begin(), as ``by``, from the beginning of the topic unless ``start_offset`` says otherwise."""
        settings = {"start_offset": -2, **settings}
        named = [sql.SQL("{} => %s").format(sql.Identifier(name)) for name in settings]
        call = sql.SQL("SELECT pipeline_kafka.consume_begin(%s, %s, {})").format(sql.SQL(", ").join(named))
        (by or self.admin).execute(call, [topic, relation, *settings.values()])

    def end(self, topic: str, relation: str) -> None:
        """consume_end() of one consumer."""
        self.admin.execute("SELECT pipeline_kafka.consume_end(%s, %s)", [topic, relation])

    def set_property(self, name: str, value: str) -> None:
        """set_property() of a librdkafka property."""
        self.admin.execute("SELECT pipeline_kafka.set_property(%s, %s)", [name, value])

    def set_secret(self, name: str, value: str) -> None:
        """set_secret() of a librdkafka property."""
        self.admin.execute("SELECT pipeline_kafka.set_secret(%s, %s)", [name, value])

    def look_often(self) -> None:
        """Let workers ask for new topics and partitions twice a second, not every 10 s."""
        self.set_property("topic.metadata.refresh.interval.ms", "500")

    # -- what a user waits for ----------------------------------------------------------------------

    def wait(self, query: str, expected: object, what: str, *values: Any) -> None:
        """Wait until the first column of the first row of a query is ``expected``."""
        wait_until(lambda: self.value(query, *values), what, TIMEOUT, accept=lambda value: value == expected)

    def wait_state(
        self, topic: str, relation: str, state: str, also: Callable[[dict[str, Any]], object] = bool
    ) -> dict[str, Any]:
        """Wait until a consumer is in a state, and ``also`` holds for its row of consumers_status; return that."""
        return wait_until(
            lambda: self.status(topic, relation),
            f"{topic} -> {relation} is {state}",
            TIMEOUT,
            accept=lambda row: row["state"] == state and also(row),
        )

    def wait_alone(self) -> None:
        """Wait until the workers have left the database, as they do when no consumer is left."""
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        self.wait(others, 0, "the workers have left the database")

    def read(self, topic: str, *relations: str, timeout: float = TIMEOUT) -> None:
        """Wait until all consumers of a topic, or those into ``relations``, have passed all that is in it now."""
        ends = self.kafka.high_watermarks(topic)
        wait_until(
            lambda: self._standing(topic, relations),
            f"{topic} is read up to {ends}",
            timeout,
            accept=lambda standing: standing and all(offsets == ends for offsets in standing.values()),
        )

    # -- what a user sees ---------------------------------------------------------------------------

    def rows(self, query: str, *values: Any) -> Rows:
        """The rows of a query."""
        return self.admin.execute(query, values).fetchall()

    def value(self, query: str, *values: Any) -> Any:
        """The first column of a query's first row."""
        row = self.admin.execute(query, values).fetchone()
        assert row is not None
        return row[0]

    def column(self, query: str, *values: Any) -> list[Any]:
        """The first column of a query, sorted."""
        return sorted(row[0] for row in self.rows(query, *values))

    def status(self, topic: str, relation: str) -> dict[str, Any]:
        """A consumer's row of consumers_status."""
        query = "SELECT * FROM pipeline_kafka.consumers_status WHERE topic = %s AND relation = %s::regclass"
        with self.admin.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(query, [topic, relation]).fetchone()
        assert row is not None, f"no consumer {topic} -> {relation}"
        return row

    def aside(self, topic: str) -> Rows:
        """(partition, offset, SQLSTATE) of the messages of a topic that were set aside, in order."""
        return self.rows(
            """SELECT partition, kafka_offset, sqlstate FROM pipeline_kafka.dead_letters WHERE topic = %s
               ORDER BY 1, 2""",
            topic,
        )

    def _standing(self, topic: str, relations: tuple[str, ...]) -> dict[int, dict[int, int]]:
        """Where each consumer stands in each partition of a topic, by consumer's id."""
        rows = self.rows(
            """SELECT c.id, o.partition, o.next_offset
               FROM pipeline_kafka.consumers c
               LEFT JOIN pipeline_kafka.offsets o ON o.consumer_id = c.id AND o.topic = %s
               WHERE c.enabled AND (c.topic = %s OR (c.topic ^@ '^' AND %s ~ c.topic))
                 AND (%s::text[] = '{}' OR c.relation = ANY (%s::text[]::regclass[]))""",
            topic, topic, topic, list(relations), list(relations),
        )  # fmt: skip
        standing: dict[int, dict[int, int]] = {}
        for consumer, partition, offset in rows:
            standing.setdefault(consumer, {})[partition] = offset
        return standing

"""Messages given to a loader by hand, into the tables of a test's database: all that a worker does, but for Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from psycopg import sql

from pipeline_kafka import catalog
from pipeline_kafka.database import connect
from pipeline_kafka.decoders import decode
from pipeline_kafka.errors import Rules
from pipeline_kafka.loader import Loader
from pipeline_kafka.message import when
from pipeline_kafka.model import Consumer, TopicPartition
from pipeline_kafka.offsets import Move
from pipeline_kafka.work import Failure, Work
from tests.fix_cluster import Connection
from tests.testbed.database import Database

TOPIC = "events"
SENT_AT = 1_700_000_000_000  # milliseconds
Value = bytes | str | None


class Feed:
    """One consumer, of topic ``events`` into a relation, and the loader that feeds it."""

    def __init__(self, database: Database, admin: Connection, relation: str = "t", **options: Any) -> None:
        self.admin = admin
        self.connection = connect(database.dsn(), "feed")
        self.loader = Loader(self.connection)
        self.patience = 0.0  # seconds a statement may take; 0.0: any
        self._ends: dict[int, int] = {}
        self.id = self._add(relation, options)

    def close(self) -> None:
        """Close its connection."""
        self.connection.close()

    # -- what a worker does -------------------------------------------------------------------------

    def send(self, *values: Value, partition: int = 0, **parts: Any) -> Failure | None:
        """Load messages, a value each, as one batch of one partition; return how that ended."""
        return self.load([self.message(value, partition, **parts) for value in values])

    def message(self, value: Value, partition: int = 0, **parts: Any) -> Message:
        """The next message of a partition."""
        offset = self._ends.get(partition, 0)
        self._ends[partition] = offset + 1
        encoded = value.encode() if isinstance(value, str) else value
        given = {"timestamp": (TIMESTAMP_CREATE_TIME, SENT_AT), **parts}
        return Message(topic=TOPIC, partition=partition, offset=offset, value=encoded, **given)

    def load(self, messages: Sequence[Message]) -> Failure | None:
        """Load messages, those of a partition one after the other, from where the consumer stands."""
        work = self.work(messages)
        self.loader.configure(Rules(catalog.read(self.connection, "g").rules), self.patience)
        return self.loader.load([work])[self.id]

    def work(self, messages: Sequence[Message]) -> Work:
        """What load() gives the loader."""
        consumer, relation = self.consumer(), catalog.describe(self.connection, self.consumer().relation)
        moves = {key: self._move(key, messages) for key in dict.fromkeys(map(_key, messages))}
        return Work(consumer, relation, decode(consumer, relation, list(messages)), moves, messages)

    def consumer(self) -> Consumer:
        """The consumer as a worker sees it. Raises StopIteration where it has stopped."""
        return next(c for c in catalog.read(self.connection, "g").consumers if c.id == self.id)

    def rewind(self) -> None:
        """Send the consumer back to the beginning of all partitions, as consume_begin(start_offset => -2) does."""
        self.admin.execute("DELETE FROM pipeline_kafka.offsets")
        self._ends.clear()

    # -- what there is then -------------------------------------------------------------------------

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.admin.execute(query, values).fetchall()

    def value(self, query: str, *values: Any) -> Any:
        """The first column of a query's first row."""
        return self.rows(query, *values)[0][0]

    def column(self, query: str, *values: Any) -> list[Any]:
        """The first column of a query, sorted."""
        return sorted(row[0] for row in self.rows(query, *values))

    def letters(self) -> list[tuple[int, int, str]]:
        """(partition, offset, SQLSTATE) of the dead letters."""
        return self.rows(
            "SELECT partition, kafka_offset, sqlstate FROM pipeline_kafka.dead_letters ORDER BY partition, kafka_offset"
        )

    def letter(self) -> dict[str, Any]:
        """The only dead letter, by column names."""
        with self.admin.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            (row,) = cursor.execute("SELECT * FROM pipeline_kafka.dead_letters").fetchall()
        return row

    def state(self) -> dict[str, Any]:
        """The consumer's row of consumers_status."""
        with self.admin.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            (row,) = cursor.execute("SELECT * FROM pipeline_kafka.consumers_status").fetchall()
        return row

    def next_offset(self, partition: int = 0) -> int:
        """Where the consumer stands."""
        offset: int = self.value("SELECT next_offset FROM pipeline_kafka.offsets WHERE partition = %s", partition)
        return offset

    # -- parts --------------------------------------------------------------------------------------

    def _add(self, relation: str, options: dict[str, Any]) -> int:
        given = {
            "topic": TOPIC, "relation": relation, "owner": self.admin.info.user, "format": "json", "delimiter": "\t",
            "batchsize": 25_000, "maxbytes": 16_000_000, "parallelism": 1, "timeout": 250, "on_error": "dead_letter",
            "on_offset_lost": "stop", "started": True, **options,
        }  # fmt: skip
        insert = sql.SQL("INSERT INTO pipeline_kafka.consumers ({}) VALUES ({}) RETURNING id").format(
            sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join([sql.Placeholder()] * len(given))
        )
        row = self.admin.execute(insert, list(given.values())).fetchone()
        assert row is not None
        return int(row[0])

    def _move(self, key: TopicPartition, messages: Sequence[Message]) -> Move:
        """How messages move the offset of their partition, which begins at the first of them."""
        mine = [message for message in messages if _key(message) == key]
        start, following = mine[0].offset() or 0, (mine[-1].offset() or 0) + 1
        self.admin.execute(
            """INSERT INTO pipeline_kafka.offsets (consumer_id, topic, partition, next_offset) VALUES (%s, %s, %s, %s)
               ON CONFLICT DO NOTHING""",
            (self.id, *key, start),
        )
        nulls = sum(message.value() is None for message in mine)
        return Move(start, following, len(mine), nulls, when(mine[-1]))


def _key(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)

"""What a row asks of the extension: consumers begun and ended, workers that are warm, and when rows came in.

In: a connection to a database of the stage. Out: counts, process ids, and times that the database took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from bench.filling import fill
from bench.stage import PARTITIONS
from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until

Connection = psycopg.Connection[Any]
PATIENCE = 300.0  # seconds

_PASSED = """
SELECT coalesce(sum(o.messages), 0)::int8 FROM pipeline_kafka.offsets o
JOIN pipeline_kafka.consumers c ON c.id = o.consumer_id WHERE c.relation::text = ANY (%s)
"""
_STANDING = """
SELECT count(*) FROM pipeline_kafka.offsets o
JOIN pipeline_kafka.consumers c ON c.id = o.consumer_id WHERE c.relation = %s::regclass
"""
_ASIDE = "SELECT topic, kafka_offset, error FROM pipeline_kafka.dead_letters LIMIT 1"
_WORKERS = """
SELECT pid FROM pipeline_kafka.workers_status
WHERE state = 'running' AND partitions >= %s ORDER BY slot
"""
_BACKENDS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'pipeline_kafka%' AND pid <> pg_backend_pid()
"""
_COMMITS = "SELECT pg_xact_commit_timestamp(x), n FROM (SELECT xmin, count(*) FROM {} GROUP BY 1) AS t(x, n)"


def begin(connection: Connection, topic: str, relation: str, **options: object) -> None:
    """consume_begin() from the beginning of the topic, with further arguments by name."""
    options = {"start_offset": -2} | options
    given = sql.SQL(", ").join(sql.SQL("{} => {}").format(sql.Identifier(n), v) for n, v in options.items())
    connection.execute(sql.SQL("SELECT pipeline_kafka.consume_begin({}, {}, {})").format(topic, relation, given))


def end(connection: Connection, topic: str, relation: str) -> None:
    """consume_end()."""
    connection.execute("SELECT pipeline_kafka.consume_end(%s, %s::regclass)", [topic, relation])


def warm_up(connection: Connection, kafka: Kafka, workers: int, groups: Sequence[str | None] = (None,)) -> None:
    """Have so many workers running, each with its share in these groups (None: the database's own) of a topic apart.

    What is begun afterwards shows the rate of workers that run, not how soon a process starts or a group is formed.
    """
    topic = f"warm-{connection.info.dbname}"
    fill(kafka, topic, PARTITIONS, [b"warm"] * PARTITIONS)
    tables = [f"warm_{number}" for number in range(len(groups))]
    for table, group in zip(tables, groups, strict=True):
        connection.execute(f"CREATE TABLE {table} (line text)")
        begin(connection, topic, table, parallelism=workers, group_id=group)
    wait_passed(connection, tables, PARTITIONS * len(groups))
    share = PARTITIONS // workers * len(groups)
    wait_until(lambda: len(worker_pids(connection, share)) >= workers, f"{workers} workers have partitions", PATIENCE)


def passed(connection: Connection, relations: Sequence[str]) -> int:
    """Return how many messages the consumers of these relations have passed."""
    return int(_one(connection, _PASSED, [list(relations)]))


def wait_passed(connection: Connection, relations: Sequence[str], count: int, patience: float = PATIENCE) -> None:
    """Wait until they have passed ``count``. Raises TimeoutError that shows one message that was set aside."""
    what = f"{count} messages are in {', '.join(relations[:4])}"
    try:
        wait_until(lambda: passed(connection, relations), what, patience, accept=lambda n: n >= count)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; set aside: {connection.execute(_ASIDE).fetchall()}") from None


def wait_partitions(connection: Connection, relation: str, count: int) -> None:
    """Wait until a worker has taken up ``count`` partitions for a relation, and tells so."""
    what = f"{relation} has offsets in {count} partitions"
    wait_until(lambda: _one(connection, _STANDING, [relation]), what, PATIENCE, accept=lambda n: n >= count)
    wait_until(lambda: worker_pids(connection, 1), "a worker has partitions", PATIENCE)


def wait_started(connection: Connection, count: int) -> None:
    """Wait until workers have given ``count`` consumers their start in every partition of their topics."""
    query = "SELECT count(*) FROM pipeline_kafka.offsets"
    wait_until(lambda: _one(connection, query), f"{count} offsets are known", PATIENCE, accept=lambda n: n >= count)


def worker_pids(connection: Connection, partitions: int = 0) -> list[int]:
    """Return the process ids of the running workers that have at least so many partitions each (told every 5 s)."""
    return [pid for (pid,) in connection.execute(_WORKERS, [partitions])]


def backend_pids(connection: Connection) -> list[int]:
    """Return the process ids of the server's backends that serve this database's workers."""
    return [pid for (pid,) in connection.execute(_BACKENDS)]


def now(connection: Connection) -> datetime:
    """Return the server's clock."""
    at = _one(connection, "SELECT clock_timestamp()")
    assert isinstance(at, datetime)
    return at


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast rows came in, by the commit timestamps of their transactions.

    ``rate`` (rows/s) is over the time from the first commit to the last and leaves the rows of the first out;
    ``whole`` is over all of them, from consume_begin() to the last commit; ``lead`` is the seconds between
    consume_begin() and the first commit.
    """

    rate: float
    whole: float
    lead: float
    commits: int


def pace(connection: Connection, relations: Sequence[str], begun: datetime) -> Pace:
    """Return how fast the rows of these tables came in. Raises ValueError where fewer than two commits did."""
    commits: dict[datetime, int] = {}
    for relation in relations:
        for at, count in connection.execute(sql.SQL(_COMMITS).format(sql.Identifier(relation))):
            commits[at] = commits.get(at, 0) + count
    if not commits:
        raise ValueError(f"no row came in; set aside: {connection.execute(_ASIDE).fetchall()}")
    first, last, rows = min(commits), max(commits), sum(commits.values())
    if first == last:
        raise ValueError(f"all {rows} rows came in one transaction: ask for more --rows")
    rate = (rows - commits[first]) / (last - first).total_seconds()
    return Pace(rate, rows / (last - begun).total_seconds(), (first - begun).total_seconds(), len(commits))


def last_commit(connection: Connection, relation: str) -> datetime:
    """Return when the last of a table's rows became visible."""
    query = sql.SQL(_COMMITS).format(sql.Identifier(relation))
    last: datetime = max(at for at, _ in connection.execute(query))
    return last


def _one(connection: Connection, query: str, parameters: Sequence[object] = ()) -> Any:
    row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return row[0]

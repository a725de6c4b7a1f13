"""Replays that are paused, resumed, cancelled, killed, and found again by a server that was restarted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.fix_cluster import Connect
from tests.fix_kafka import MakeTopic, link
from tests.integration.flow import Flow
from tests.integration.replays import HOLD, Row, do, held, replay, status, wait_for, waits
from tests.integration.test_life import restore
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until
from tests.testbed.worker import Worker

COUNTS = "SELECT count(*), count(DISTINCT id) FROM t"


def at_least(messages: int) -> Callable[[Row], bool]:
    """Has a replay passed so many messages?"""
    return lambda row: bool(row["messages"] >= messages)


@pytest.fixture
def hundred(flow: Flow, topic: MakeTopic) -> str:
    """A topic with the messages 0 to 99, and a table t for them."""
    name = topic()
    flow.kafka.produce(name, map(str, range(100)))
    flow.admin.execute("CREATE TABLE t (id int)")
    return name


def test_paused_and_resumed_from_its_last_commit(flow: Flow, hundred: str, connect: Connect) -> None:
    with held(flow.admin, connect):
        each = replay(flow.admin, hundred, "t", batchsize=10)
        wait_until(lambda: waits(flow.admin), "it has come to the row 50")
        do(flow.admin, "pause", each)
    flow.wait_alone()
    paused = status(flow.admin, each)
    assert paused["state"] == "paused"
    assert paused["messages"] in (50, 60)  # the batch under way may have been committed
    assert paused["remaining"] == 100 - paused["messages"]
    assert flow.value("SELECT count(*) FROM t") == paused["messages"]
    do(flow.admin, "resume", each)
    wait_for(flow.admin, each, "finished", lambda row: row["messages"] == 100)
    assert flow.rows(COUNTS) == [(100, 100)]


def test_cancelled_for_good(flow: Flow, hundred: str, connect: Connect) -> None:
    with held(flow.admin, connect):
        each = replay(flow.admin, hundred, "t", batchsize=10)
        wait_until(lambda: waits(flow.admin), "it has come to the row 50")
        do(flow.admin, "cancel", each)
    flow.wait_alone()
    cancelled = status(flow.admin, each)
    assert cancelled["state"] == "cancelled"
    assert cancelled["messages"] in (50, 60)
    assert flow.value("SELECT count(*) FROM t") == cancelled["messages"]
    for function in ("resume", "pause", "cancel"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="has ended: it is cancelled"):
            do(flow.admin, function, each)


def test_its_progress_shows_while_it_goes_on(flow: Flow, hundred: str, connect: Connect) -> None:
    with held(flow.admin, connect):
        each = replay(flow.admin, hundred, "t", batchsize=10)
        row = wait_for(flow.admin, each, "running", lambda row: row["messages"] == 50)
        assert row["remaining"] == 50
        assert row["rate"] > 0
        assert row["time_left"].total_seconds() >= 0
    wait_for(flow.admin, each, "finished")


def test_a_killed_process_comes_back_and_nothing_comes_twice(flow: Flow, hundred: str, connect: Connect) -> None:
    with held(flow.admin, connect):
        each = replay(flow.admin, hundred, "t", batchsize=10)
        wait_until(lambda: waits(flow.admin), "it has come to the row 50")
        os.kill(flow.value("SELECT pid FROM pipeline_kafka.workers WHERE slot >= 1024"), signal.SIGKILL)
    wait_for(flow.admin, each, "finished", lambda row: row["messages"] == 100)
    assert flow.rows(COUNTS) == [(100, 100)]


def test_a_dropped_relation_stops_it_with_the_reason(flow: Flow, hundred: str) -> None:
    with flow.admin.transaction():
        each = replay(flow.admin, hundred, "t")
        flow.admin.execute("DROP TABLE t")
    stopped = wait_for(flow.admin, each, "stopped")
    assert stopped["last_error"] == "relation public.t was dropped"
    with pytest.raises(psycopg.errors.UndefinedTable, match="the relation of replay 1 was dropped"):
        do(flow.admin, "resume", each)
    flow.admin.execute("DELETE FROM pipeline_kafka.consumers WHERE id = %s", [each])
    assert flow.rows("SELECT * FROM pipeline_kafka.replays") == []


def test_a_limit_holds_when_its_process_is_killed(flow: Flow, topic: MakeTopic) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        flow.kafka.produce(name, [f"{partition + 1}{n:04}" for n in range(5_000)], partition=partition)
    flow.admin.execute("CREATE TABLE t (id int)")
    each = replay(flow.admin, name, "t", batchsize=100, max_messages=10_001)
    for least in (500, 2_000, 5_000):
        wait_for(flow.admin, each, "running", at_least(least))
        os.kill(flow.value("SELECT pid FROM pipeline_kafka.workers WHERE slot >= 1024"), signal.SIGKILL)
    wait_for(flow.admin, each, "finished", lambda row: row["messages"] == 10_001)
    assert flow.rows(COUNTS) == [(10_001, 10_001)]


def test_a_dump_brings_it_back(flow: Flow, hundred: str, connect: Connect, database: Database, folder: Path) -> None:
    with flow.admin.transaction():
        each = replay(flow.admin, hundred, "t", end_offset=70)
        do(flow.admin, "pause", each)
    copy = restore(database, folder / "dump.sql")
    try:
        with copy.connect() as connection:
            do(connection, "resume", each)
            wait_for(connection, each, "finished")
            assert connection.execute(COUNTS).fetchall() == [(70, 70)]
            assert replay(connection, hundred, "t", start_offset=99) == each + 1
            wait_for(connection, each + 1, "finished")
    finally:
        copy.drop()
    assert flow.rows(COUNTS) == [(0, 0)]


@pytest.mark.usefixtures("no_local_workers")
def test_where_the_server_runs_no_workers_one_may_be_run_by_hand(
    flow: Flow, hundred: str, database: Database, folder: Path
) -> None:
    each = replay(flow.admin, hundred, "t")
    assert status(flow.admin, each)["state"] == "no worker"
    slot = flow.value("SELECT slot FROM pipeline_kafka.replays")
    worker = Worker(database.dsn(), folder / "worker.log", slot).start()
    wait_for(flow.admin, each, "finished")
    wait_until(lambda: not worker.running, "the worker has ended")
    assert worker.exit_code == 2  # nothing to do
    assert flow.rows(COUNTS) == [(100, 100)]


def test_a_server_that_was_restarted_goes_on_where_nothing_else_consumes(
    own_database: Database, own_cluster: Cluster, kafka: Kafka, topic: MakeTopic
) -> None:
    name = topic()
    kafka.produce(name, map(str, range(100)))
    with own_database.connect() as admin, own_database.connect() as holder:
        link(admin, kafka.bootstrap)
        admin.execute("CREATE TABLE t (id int)")
        admin.execute(HOLD)
        holder.execute("SELECT pg_advisory_lock(50)")
        going, other = replay(admin, name, "t", batchsize=10), replay(admin, name, "t", start_offset=90)
        wait_until(lambda: waits(admin), "it has come to the row 50")
        with admin.transaction():
            paused = replay(admin, name, "t", start_offset=99)
            do(admin, "pause", paused)
        wait_for(admin, other, "finished")
        own_cluster.restart("immediate")
    with own_database.connect() as admin:
        wait_for(admin, going, "finished", lambda row: row["messages"] == 100)
        assert admin.execute(COUNTS).fetchall() == [(110, 100)]
        assert status(admin, paused)["state"] == "paused"

"""The server's own workers: when they start and end, what becomes of one that dies, and databases that go away."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fix_cluster import Connect, Connection, new_database
from tests.fix_kafka import MakeTopic, link
from tests.fix_report import Watch
from tests.integration.flow import Flow
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

SHIMS = """
SELECT application_name FROM pg_stat_activity
WHERE backend_type = 'pipeline_kafka worker' AND application_name ^@ (
    SELECT format('pipeline_kafka worker %s/', oid) FROM pg_database WHERE datname = current_database())
"""


def slots(connection: Connection) -> list[int]:
    """The slots of this database for which the server keeps a worker."""
    return sorted({int(name.rpartition("/")[2]) for (name,) in connection.execute(SHIMS)})


def wait_slots(connection: Connection, expected: list[int]) -> None:
    wait_until(lambda: slots(connection), f"slots {expected} have workers", accept=expected.__eq__)


def test_workers_start_at_commit_and_not_at_rollback(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    session = connect(autocommit=False)
    session.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    session.commit()
    flow.begin(name, "t", by=session, parallelism=3)
    session.rollback()
    flow.begin(name, "t", by=session)
    session.execute("SAVEPOINT s")
    flow.begin(name, "u", by=session, parallelism=3)
    session.execute("ROLLBACK TO s")
    assert slots(flow.admin) == []
    session.commit()
    flow.wait_state(name, "t", "running")
    assert slots(flow.admin) == [0]


def test_a_savepoint_that_is_kept_starts_its_workers(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    session = connect(autocommit=False)
    session.execute("CREATE TABLE t (id int); SAVEPOINT s")
    flow.begin(name, "t", by=session, parallelism=2)
    session.execute("RELEASE s")
    session.commit()
    wait_slots(flow.admin, [0, 1])


def test_workers_end_with_the_last_consumer_and_come_back_with_the_next(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    with flow.admin.transaction():
        flow.begin(name, "t", parallelism=2)
        flow.begin(name, "u")
    wait_slots(flow.admin, [0, 1])
    flow.end(name, "t")
    wait_slots(flow.admin, [0])
    flow.end(name, "u")
    wait_slots(flow.admin, [])
    flow.kafka.produce(name, ["1"])
    flow.admin.execute("SELECT pipeline_kafka.consume_begin()")
    wait_slots(flow.admin, [0, 1])
    flow.read(name)
    assert flow.column("SELECT id FROM t UNION ALL SELECT id FROM u") == [1, 1]


def test_parallelism_is_raised_and_lowered_without_loss(flow: Flow, topic: MakeTopic) -> None:
    name = topic(4)
    flow.set_property("session.timeout.ms", "2000")
    flow.admin.execute("CREATE TABLE t (id int)")
    for turn, workers in enumerate((1, 3, 2)):
        flow.begin(name, "t", start_offset=None if turn else -2, parallelism=workers)
        for partition in range(4):
            flow.kafka.produce(name, [str(100 * turn + 25 * partition + n) for n in range(25)], partition=partition)
        wait_slots(flow.admin, list(range(workers)))
        flow.read(name)
    assert flow.column("SELECT id FROM t") == list(range(300))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_dies_comes_back_and_the_server_does_not_notice(
    flow: Flow, topic: MakeTopic, cluster: Cluster, number: signal.Signals
) -> None:
    name = topic()
    seen = cluster.log_size()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.kafka.produce(name, ["1"])
    flow.read(name)
    session = flow.value("SELECT pg_backend_pid()")
    os.kill(flow.value("SELECT pid FROM pipeline_kafka.workers_status"), number)
    flow.kafka.produce(name, ["2"])
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]
    assert cluster.resets(seen) == 0
    assert flow.value("SELECT pg_backend_pid()") == session
    assert "starting it again" in cluster.log(seen)


def test_a_database_is_dropped_though_its_workers_run(
    flow: Flow, topic: MakeTopic, cluster: Cluster, database: Database
) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t", parallelism=2)
    flow.wait_state(name, "t", "running")
    wait_slots(flow.admin, [0, 1])
    oid = flow.value("SELECT oid::int FROM pg_database WHERE datname = current_database()")
    flow.admin.close()
    with cluster.connect() as postgres:
        postgres.execute(f"DROP DATABASE {database.name}")
        left = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s"
        wait_until(
            lambda: postgres.execute(left, [f"pipeline_kafka worker {oid}/%"]).fetchone(),
            "the workers are gone",
            accept=lambda row: row == (0,),
        )


def test_a_database_is_dropped_though_its_workers_wait_for_kafka(
    admin: Connection, cluster: Cluster, database: Database
) -> None:
    admin.execute("CREATE TABLE t (id int)")
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [f"127.0.0.1:{free_port()}"])
    admin.execute("SELECT pipeline_kafka.consume_begin('any', 't')")
    running = "SELECT count(*) FROM pipeline_kafka.workers_status WHERE state = 'running'"
    wait_until(lambda: admin.execute(running).fetchone(), "the worker runs", accept=lambda row: row == (1,))
    admin.close()
    with cluster.connect() as postgres:
        postgres.execute(f"DROP DATABASE {database.name}")


def test_a_database_is_renamed_though_its_workers_run(
    flow: Flow, topic: MakeTopic, cluster: Cluster, database: Database
) -> None:
    name = topic()
    flow.kafka.produce(name, ["1"])
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.read(name)
    flow.admin.close()
    with cluster.connect() as postgres:
        postgres.execute(f"ALTER DATABASE {database.name} RENAME TO {database.name}_renamed")
    database.name += "_renamed"
    with database.connect() as admin:
        renamed = Flow(admin, flow.kafka)
        renamed.kafka.produce(name, ["2"])
        renamed.read(name)
        assert renamed.column("SELECT id FROM t") == [1, 2]


def test_a_copy_of_a_database_is_quiet_and_the_template_goes_on(
    flow: Flow, topic: MakeTopic, cluster: Cluster, database: Database
) -> None:
    name = topic()
    flow.kafka.produce(name, ["1"])
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.read(name)
    flow.admin.close()
    copy = Database(cluster, f"{database.name}_copy")
    with cluster.connect() as postgres:
        postgres.execute(f"CREATE DATABASE {copy.name} TEMPLATE {database.name}")
    try:
        with database.connect() as admin, copy.connect() as other:
            original, quiet = Flow(admin, flow.kafka), Flow(other, flow.kafka)
            original.kafka.produce(name, ["2"])
            original.read(name)
            assert original.column("SELECT id FROM t") == [1, 2]
            assert quiet.column("SELECT id FROM t") == [1]
            assert quiet.status(name, "t")["state"] == "no worker"
            other.execute("SELECT pipeline_kafka.consume_begin()")
            quiet.read(name)
            assert quiet.column("SELECT id FROM t") == [1, 2]
    finally:
        copy.drop()


@pytest.fixture(scope="module")
def small_cluster(session_folder: Path, watch_log: Watch) -> Generator[Cluster]:
    """A server without preloading, with room for one worker."""
    settings = {"max_worker_processes": 1, "max_logical_replication_workers": 0}
    cluster = Cluster(session_folder / "small", preload=False, settings=settings)
    watch_log("small server log", cluster.log_file)
    cluster.start()
    yield cluster
    cluster.stop("immediate")


@pytest.fixture
def small_database(small_cluster: Cluster) -> Generator[Database]:
    """A database on ``small_cluster``, once the worker of the test before has made room."""
    workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pipeline_kafka%'"
    with small_cluster.connect() as postgres:
        wait_until(lambda: postgres.execute(workers).fetchone(), "there is room", accept=lambda row: row == (0,))
    yield from new_database(small_cluster)


def test_without_preloading_workers_run_but_one_is_warned(
    flow: Flow, topic: MakeTopic, small_database: Database
) -> None:
    name = topic()
    said: list[str] = []
    with small_database.connect() as admin:
        admin.add_notice_handler(lambda notice: said.append(f"{notice.message_primary} {notice.message_hint}"))
        link(admin, flow.kafka.bootstrap)
        small = Flow(admin, flow.kafka)
        admin.execute("CREATE TABLE t (id int)")
        small.begin(name, "t")
        assert ["will not come back" in line and "shared_preload_libraries" in line for line in said] == [True]
        small.kafka.produce(name, ["1"])
        small.read(name)
        assert small.column("SELECT id FROM t") == [1]


def test_more_workers_than_there_is_room_for_are_told_of(
    flow: Flow, topic: MakeTopic, small_database: Database
) -> None:
    name = topic()
    said: list[str] = []
    with small_database.connect() as admin:
        link(admin, flow.kafka.bootstrap)
        small = Flow(admin, flow.kafka)
        admin.execute("CREATE TABLE t (id int)")
        admin.add_notice_handler(lambda notice: said.append(f"{notice.message_primary} {notice.message_hint}"))
        small.begin(name, "t", parallelism=2)
        assert any("1 of 2" in line and "max_worker_processes" in line for line in said), said
        small.wait_state(name, "t", "running")
        workers = small.rows("SELECT slot, state, last_error FROM pipeline_kafka.workers_status")
        assert [row[:2] for row in workers] == [(0, "running"), (1, "not running")]
        assert "max_worker_processes (1)" in workers[1][2]
        small.kafka.produce(name, ["1"])
        small.read(name)
        assert small.column("SELECT id FROM t") == [1]


def test_many_consumers_begun_in_a_row_need_one_worker(flow: Flow, topic: MakeTopic, small_database: Database) -> None:
    name = topic()
    said: list[str] = []
    with small_database.connect() as admin:
        link(admin, flow.kafka.bootstrap)
        small = Flow(admin, flow.kafka)
        admin.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        for table in "abcde":
            admin.execute(f"CREATE TABLE {table} (id int)")
        for table in "abcde":
            small.begin(name, table)
        assert [line for line in said if "could be started" in line] == []
        small.kafka.produce(name, ["1"])
        small.read(name)

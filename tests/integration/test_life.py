"""The extension's own life: dropped, made again, dumped and restored."""

from __future__ import annotations

from pathlib import Path

from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.testbed.database import Database
from tests.testbed.postgres import bindir
from tests.testbed.process import plain_environment, run
from tests.testbed.wait import wait_until


def test_the_extension_is_dropped_while_it_works_and_made_again(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1"])
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.read(name)
    flow.admin.execute("DROP EXTENSION pipeline_kafka")
    assert flow.rows("SELECT FROM pg_namespace WHERE nspname = 'pipeline_kafka'") == []
    assert flow.rows("SELECT FROM pg_event_trigger") == []
    flow.admin.execute("DROP TABLE t; CREATE TABLE t (id int); CREATE EXTENSION pipeline_kafka")
    for host in flow.kafka.bootstrap.split(","):
        flow.admin.execute("SELECT pipeline_kafka.add_broker(%s)", [host])
    flow.begin(name, "t")
    flow.kafka.produce(name, ["2"])
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]


def test_workers_end_when_the_extension_is_dropped(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.wait_state(name, "t", "running")
    flow.admin.execute("DROP EXTENSION pipeline_kafka")
    flow.wait_alone()


def test_a_worker_that_waits_for_a_table_of_ours_holds_no_other(
    flow: Flow, topic: MakeTopic, database: Database
) -> None:
    """DROP EXTENSION locks them one after the other."""
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.wait_state(name, "t", "running")
    waiting = "SELECT pid FROM pg_locks WHERE relation = 'pipeline_kafka.brokers'::regclass AND NOT granted"
    with database.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE pipeline_kafka.brokers")
        flow.admin.execute("NOTIFY pipeline_kafka")
        wait_until(lambda: flow.rows(waiting), "the worker waits")
        held = f"""SELECT c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                   WHERE l.pid IN ({waiting}) AND l.granted AND c.relnamespace = 'pipeline_kafka'::regnamespace"""
        assert flow.rows(held) == []


def test_a_dump_brings_consumers_offsets_and_dead_letters_back(
    flow: Flow, topic: MakeTopic, database: Database, folder: Path
) -> None:
    name = topic()
    flow.kafka.produce(name, ["1", "bad", "2"])
    flow.admin.execute('CREATE SCHEMA s; CREATE TABLE s."T" (id int)')
    flow.begin(name, 's."T"', group_id="ours " + name)
    flow.set_property("client.id", "me")
    flow.read(name)
    flow.end(name, 's."T"')
    copy = restore(database, folder / "dump.sql")
    try:
        with copy.connect() as connection:
            for table in ("brokers", "properties", "consumers", "offsets", "dead_letters"):
                query = f"SELECT {table}::text FROM pipeline_kafka.{table}"
                assert connection.execute(query).fetchall() == flow.rows(query), table
            go_on(Flow(connection, flow.kafka), name)
    finally:
        copy.drop()


def restore(database: Database, dump: Path) -> Database:
    """A new database from a dump of this one."""
    copy = Database(database.cluster, f"{database.name}_copy")
    env = plain_environment()
    run([bindir() / "pg_dump", f"--dbname={database.dsn()}", f"--file={dump}"], env=env)
    with database.cluster.connect() as postgres:
        postgres.execute(f"CREATE DATABASE {copy.name}")
    script = ["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={dump}"]
    run([bindir() / "psql", f"--dbname={copy.dsn()}", *script], env=env)
    return copy


def go_on(flow: Flow, name: str) -> None:
    """A restored database reads on where the dump was made, and its new rows get new numbers."""
    flow.kafka.produce(name, ["3", "worse"])
    flow.admin.execute("SELECT pipeline_kafka.consume_begin()")
    flow.read(name)
    assert flow.column('SELECT id FROM s."T"') == [1, 2, 3]
    assert flow.column("SELECT id FROM pipeline_kafka.dead_letters") == [1, 2]
    flow.admin.execute("CREATE TABLE u (id int)")
    flow.begin(name, "u")
    assert flow.column("SELECT id FROM pipeline_kafka.consumers") == [1, 2]

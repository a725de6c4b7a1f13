"""What a person sees: states, lag, workers, the command `pipeline-kafka status`, and the server's log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.fix_cluster import Connection
from tests.fix_kafka import MakeTopic
from tests.fix_worker import MakeWorker
from tests.integration.flow import Flow
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until
from tests.testbed.worker import CHECKOUT

# A trigger that makes a consumer fail, as a lost privilege or a dropped function would, until it is disabled.
FAILING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE 'not now' USING ERRCODE = 'insufficient_privilege', HINT = 'later';
END $$;
CREATE TABLE t (id int);
CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""


def test_a_consumer_without_a_worker(
    flow: Flow, topic: MakeTopic, no_local_workers: None, external_worker: MakeWorker
) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    assert flow.status(name, "t")["state"] == "no worker"
    worker = external_worker()
    flow.wait_state(name, "t", "running")
    worker.stop()
    assert flow.status(name, "t")["state"] == "no worker"


def test_a_consumer_whose_kafka_is_not_there(admin: Connection, flow: Flow) -> None:
    admin.execute("DELETE FROM pipeline_kafka.brokers")
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [f"127.0.0.1:{free_port()}"])
    admin.execute("CREATE TABLE t (id int)")
    flow.begin("any", "t")
    flow.wait_state("any", "t", "starting")
    said = "SELECT last_error FROM pipeline_kafka.workers_status"
    wait_until(
        lambda: flow.value(said),
        "the worker says why",
        accept=lambda error: error and "Kafka's connection failed" in error and "Connection refused" in error,
    )
    assert flow.value("SELECT now() - last_error_at < interval '30 s' FROM pipeline_kafka.workers_status")


def test_a_consumer_that_fails_says_why_and_when_it_tries_again(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1"])
    flow.admin.execute(FAILING)
    flow.begin(name, "t")
    status = flow.wait_state(name, "t", "failing", also=lambda row: row["failures"] > 1)
    assert status["last_sqlstate"] == "42501"
    assert status["last_error"].splitlines()[:2] == ["not now", "later"]
    assert status["retry_at"] > status["last_error_at"]
    flow.admin.execute("ALTER TABLE t DISABLE TRIGGER refuse")
    flow.read(name)
    status = flow.wait_state(name, "t", "running")
    assert (status["failures"], status["retry_at"], status["last_sqlstate"]) == (0, None, "42501")


def test_a_consumer_that_works_again_shows_so_though_another_worker_saw_it_fail(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1"])
    flow.admin.execute(FAILING)
    flow.begin(name, "t")
    flow.wait_state(name, "t", "failing")
    os.kill(flow.value("SELECT pid FROM pipeline_kafka.workers_status"), signal.SIGKILL)
    flow.admin.execute("ALTER TABLE t DISABLE TRIGGER refuse")
    flow.read(name)
    flow.wait_state(name, "t", "running")


def test_lag_in_messages_and_seconds(flow: Flow, topic: MakeTopic) -> None:
    name = topic(2)
    flow.kafka.produce(name, ["1", "2"], partition=0)
    flow.admin.execute(FAILING + "ALTER TABLE t DISABLE TRIGGER refuse")
    flow.begin(name, "t")
    flow.read(name)
    lag = "SELECT partition, next_offset, high, lag, lag_seconds FROM pipeline_kafka.consumer_lag ORDER BY partition"
    wait_until(lambda: flow.rows(lag), "the lag is 0", accept=lambda rows: rows == [(0, 2, 2, 0, 0), (1, 0, 0, 0, 0)])
    flow.admin.execute("ALTER TABLE t ENABLE TRIGGER refuse")
    flow.kafka.produce(name, ["3", "4", "5"], partition=0)
    flow.kafka.produce(name, ["6"], partition=1)
    rows = wait_until(lambda: flow.rows(lag), "the lag is 3 and 1", accept=lambda rows: [r[3] for r in rows] == [3, 1])
    assert rows[0][4] > 0
    assert rows[1][4] is None  # it has not passed a message yet whose age it could tell
    assert flow.status(name, "t")["lag"] == 4


def test_counts(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1", "x", None, "2"])
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.read(name)
    status = flow.status(name, "t")
    counts = {key: status[key] for key in ("partitions", "messages", "set_aside", "skipped", "nulls", "lost")}
    assert counts == {"partitions": 1, "messages": 4, "set_aside": 1, "skipped": 0, "nulls": 1, "lost": 0}
    assert flow.value("SELECT now() - last_progress < interval '1 minute' FROM pipeline_kafka.consumers_status")


def test_workers_show_where_they_are_and_what_they_do(flow: Flow, topic: MakeTopic) -> None:
    name = topic(3)
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.wait("SELECT partitions FROM pipeline_kafka.workers_status", 3, "the worker has three partitions")
    row = flow.rows("SELECT slot, state, host, pid, last_error FROM pipeline_kafka.workers_status")[0]
    assert row[:3] == (0, "running", os.uname().nodename)
    os.kill(row[3], 0)
    assert row[4] is None


def test_an_external_worker_joins_and_shows_in_the_same_view(
    flow: Flow, topic: MakeTopic, external_worker: MakeWorker
) -> None:
    name = topic(4)
    flow.set_property("session.timeout.ms", "2000")
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.wait_state(name, "t", "running")
    worker = external_worker()
    shares = "SELECT array_agg(ROW(slot, partitions)::text ORDER BY slot) FROM pipeline_kafka.workers_status"
    flow.wait(shares, ["(0,2)", "(100,2)"], "the workers share the partitions")
    for partition in range(4):
        flow.kafka.produce(name, [str(partition)], partition=partition)
    flow.read(name)
    assert worker.stop() == 0
    flow.wait(shares, ["(0,4)"], "the worker that stays has all")
    for partition in range(4):
        flow.kafka.produce(name, [str(4 + partition)], partition=partition)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == list(range(8))


def status_command(database: Database, *arguments: str) -> str:
    command = [sys.executable, "-m", "pipeline_kafka", "status", "--dsn", database.dsn(), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "400"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_status_command(flow: Flow, topic: MakeTopic, database: Database) -> None:
    name = topic()
    flow.kafka.produce(name, ["1", "x"])
    flow.admin.execute('CREATE TABLE "T" (id int)')
    flow.begin(name, '"T"')
    flow.read(name)
    flow.wait("SELECT partitions FROM pipeline_kafka.workers_status", 1, "the worker has its partition")
    told: dict[str, list[dict[str, Any]]] = json.loads(status_command(database, "--json"))
    assert [(row["slot"], row["state"], row["partitions"]) for row in told["workers"]] == [(0, "running", 1)]
    keys = ("topic", "relation", "state", "messages", "set_aside")
    assert [tuple(row[key] for key in keys) for row in told["consumers"]] == [(name, 'public."T"', "running", 2, 1)]
    for_people = status_command(database)
    for word in (name, '"T"', "running", "workers", "consumers"):
        assert word in for_people


def test_the_status_command_where_nothing_is(database: Database, admin: Connection) -> None:
    assert json.loads(status_command(database, "--json")) == {"workers": [], "consumers": [], "replays": []}
    assert "none" in status_command(database)
    admin.execute("DROP EXTENSION pipeline_kafka")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        status_command(database)
    assert failed.value.returncode == 1
    assert f"not in database {database.name}: CREATE EXTENSION pipeline_kafka CASCADE;" in failed.value.stderr
    assert "Traceback" not in failed.value.stderr


def test_the_status_command_of_a_role_that_may_not_look(database: Database, admin: Connection) -> None:
    admin.execute("DO $$ BEGIN CREATE ROLE stranger LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        status_command(database, "--dsn", f"{database.dsn()} user=stranger")
    assert "permission denied for view workers_status\nGRANT pg_monitor TO stranger;" in failed.value.stderr


def test_worker_lines_reach_the_servers_log_with_level_and_consumer(
    flow: Flow, topic: MakeTopic, cluster: Cluster
) -> None:
    name = topic()
    seen = cluster.log_size()
    flow.kafka.produce(name, ["1"])
    flow.admin.execute(FAILING)
    flow.begin(name, "t")
    flow.wait_state(name, "t", "failing")
    flow.admin.execute("ALTER TABLE t DISABLE TRIGGER refuse")
    flow.read(name)
    worker = f"pipeline_kafka {flow.admin.info.dbname}/0: "
    for line in (
        f"LOG:  {worker}begins in slot 0",
        f"WARNING:  {worker}consumer {name} -> public.t failed, next try in 1.0 s: 42501 not now | later",
        f"LOG:  {worker}consumer {name} -> public.t goes on",
    ):
        wait_until(lambda line=line: line in cluster.log(seen), line)  # type: ignore[misc]

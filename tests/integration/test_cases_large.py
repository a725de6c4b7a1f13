"""Cases of the catalog that take more than a topic and a table: deadlocks (17), large messages (19), passwords (20)."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fix_cluster import Connection
from tests.fix_kafka import MakeTopic
from tests.fix_report import Watch
from tests.integration.flow import Flow
from tests.testbed.broker import Broker
from tests.testbed.cluster import Cluster
from tests.testbed.wait import wait_until


def test_case_17_a_deadlock_between_workers_is_retried(flow: Flow, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(2)
    seen = cluster.log_size()
    # Before its second row each worker waits at the gate, so that both have written one when it opens.
    flow.admin.execute(
        """CREATE TABLE gate (id int); INSERT INTO gate VALUES (1);
           CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF EXISTS (SELECT FROM t) THEN PERFORM FROM gate FOR SHARE; END IF;
               RETURN NEW;
           END $$;
           CREATE TABLE t (id int UNIQUE);
           CREATE TRIGGER wait_at_gate BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION wait_at_gate()"""
    )
    flow.begin(name, "t", parallelism=2)
    shares = "SELECT array_agg(partitions ORDER BY slot) FROM pipeline_kafka.workers_status WHERE state = 'running'"
    flow.wait(shares, [1, 1], "each worker has a partition")
    with flow.admin.transaction():
        flow.admin.execute("SELECT FROM gate FOR UPDATE")
        produce_at_once(flow, name, {0: ["1", "2"], 1: ["2", "1"]})
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        flow.wait(waiting, 2, "both workers wait")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]
    assert [sqlstate for _, _, sqlstate in flow.aside(name)] == ["23505", "23505"]
    assert "deadlock detected" in cluster.log(seen)


def produce_at_once(flow: Flow, topic: str, values: dict[int, list[str]]) -> None:
    """Messages by partition, in a transaction: whoever reads one of a partition can read all of it."""
    producer = flow.kafka.producer(transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition, each in values.items():
        for value in each:
            producer.produce(topic, value, partition=partition)
    producer.commit_transaction(30)


COUNT, SIZE, MAXBYTES = 1000, 900_000, 8_000_000


def test_case_19_large_messages_are_read_within_bounds(flow: Flow, topic: MakeTopic) -> None:
    name = topic(2)
    flow.kafka.produce(name, [json.dumps({"id": n, "name": "x" * SIZE}) for n in range(COUNT)])
    flow.admin.execute(
        """CREATE TABLE t (id int, name text, size int, batch xid8 DEFAULT pg_current_xact_id());
           CREATE FUNCTION measure() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               NEW.size := length(NEW.name); NEW.name := NULL; RETURN NEW;
           END $$;
           CREATE TRIGGER measure BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION measure()"""
    )
    flow.begin(name, "t", format="json", maxbytes=MAXBYTES)
    flow.read(name, timeout=300)
    assert flow.rows("SELECT count(DISTINCT id), sum(size) FROM t") == [(COUNT, COUNT * SIZE)]
    assert flow.value("SELECT max(size) FROM (SELECT sum(size) AS size FROM t GROUP BY batch) b") <= MAXBYTES + 2 * SIZE
    assert peak_memory(flow.value("SELECT pid FROM pipeline_kafka.workers_status")) < 250


def peak_memory(pid: int) -> float:
    """Megabytes of memory that a process has had at the most."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


PASSWORD = "p,a=s s  w'o\"r;d,"


@pytest.fixture
def guarded_broker(folder: Path, watch_log: Watch) -> Generator[Broker]:
    """A broker whose second listener asks for a password."""
    broker = Broker(folder / "broker")
    broker.proxy_address = broker.proxy_target
    broker.proxied_bootstrap = str(broker.proxy_target)
    password = PASSWORD.replace('"', '\\\\"')
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    broker.settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.proxied.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.proxied.plain.sasl.jaas.config": f'{module} required user_me="{password}";',
    }
    watch_log("guarded broker log", broker.log_file)
    yield broker.start()
    broker.stop()


def test_case_20_a_password_with_everything_in_it(admin: Connection, guarded_broker: Broker, cluster: Cluster) -> None:
    seen = cluster.log_size()
    flow = Flow(admin, guarded_broker)
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [guarded_broker.proxied_bootstrap])
    for name, value in {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
    }.items():
        flow.set_property(name, value)
    flow.set_secret("sasl.password", PASSWORD + "wrong")
    guarded_broker.create_topic("guarded")
    guarded_broker.produce("guarded", ["1"])
    admin.execute("CREATE TABLE t (id int)")
    flow.begin("guarded", "t")
    said = "SELECT last_error FROM pipeline_kafka.workers_status"
    error = wait_until(
        lambda: flow.value(said), "the broker refuses the password", accept=lambda e: e and "uthentication" in e
    )
    flow.set_secret("sasl.password", PASSWORD)
    flow.read("guarded")
    assert flow.column("SELECT id FROM t") == [1]
    shown = flow.value("SELECT string_agg(value, ' ') FROM pipeline_kafka.properties_shown")
    status = flow.value("SELECT string_agg(s::text, ' ') FROM pipeline_kafka.consumers_status s")
    assert PASSWORD[:5] not in f"{error} {shown} {status} {cluster.log(seen)}"  # before any quote, which may be doubled

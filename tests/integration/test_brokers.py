"""Where Kafka is and how it is spoken to: brokers, and librdkafka's properties."""

from __future__ import annotations

import psycopg
import pytest

from tests.fix_cluster import Connection
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.testbed.kafka import Kafka
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until


def brokers(connection: Connection) -> list[str]:
    return [host for (host,) in connection.execute("SELECT host FROM pipeline_kafka.brokers ORDER BY host")]


def shown(connection: Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM pipeline_kafka.properties_shown").fetchall())


def stored(connection: Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM pipeline_kafka.properties").fetchall())


def test_brokers_are_added_and_removed(admin: Connection) -> None:
    added = ["kafka1:9092", "kafka2.example.com:9093, 10.0.0.1:9092", "[2001:db8::1]:9092", "kafka1:9092"]
    for host in added:
        assert admin.execute("SELECT pipeline_kafka.add_broker(%s)", [host]).fetchone() == ("success",)
    assert brokers(admin) == ["10.0.0.1:9092", "[2001:db8::1]:9092", "kafka1:9092", "kafka2.example.com:9093"]
    for host in ("kafka1:9092", "[2001:db8::1]:9092"):
        admin.execute("SELECT pipeline_kafka.remove_broker(%s)", [host])
    assert brokers(admin) == ["10.0.0.1:9092", "kafka2.example.com:9093"]
    with pytest.raises(psycopg.errors.UndefinedObject, match='broker "kafka1:9092" is not configured') as refused:
        admin.execute("SELECT pipeline_kafka.remove_broker('kafka1:9092')")
    assert "pipeline_kafka.brokers" in (refused.value.diag.message_hint or "")


def test_a_file_that_is_not_there_is_warned_of(admin: Connection) -> None:
    said: list[str] = []
    admin.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    for value in ("/dev/null", "probe"):
        admin.execute("SELECT pipeline_kafka.set_property('ssl.ca.location', %s)", [value])
    assert said == []
    admin.execute("SELECT pipeline_kafka.set_property('ssl.ca.location', '/no/such/file')")
    assert said == ['property "ssl.ca.location" names no file that the server\'s OS user may read here']


def test_who_removes_the_last_broker_is_warned(admin: Connection) -> None:
    said: list[str] = []
    admin.add_notice_handler(lambda notice: said.append(f"{notice.severity}: {notice.message_primary}"))
    admin.execute("SELECT pipeline_kafka.add_broker('kafka1:9092, kafka2:9092')")
    admin.execute("SELECT pipeline_kafka.remove_broker('kafka1:9092')")
    assert said == []
    admin.execute("SELECT pipeline_kafka.remove_broker('kafka2:9092')")
    assert said == ["WARNING: no broker is configured, so nothing can be read"]


def test_a_property_is_set_changed_and_unset(admin: Connection) -> None:
    for value in ("5000", "6000"):
        admin.execute("SELECT pipeline_kafka.set_property('session.timeout.ms', %s)", [value])
        assert shown(admin) == {"session.timeout.ms": value}
    admin.execute("SELECT pipeline_kafka.unset_property('session.timeout.ms')")
    assert shown(admin) == {}
    with pytest.raises(psycopg.errors.UndefinedObject, match=r'"session\.timeout\.ms" is not set'):
        admin.execute("SELECT pipeline_kafka.unset_property('session.timeout.ms')")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_properties_that_go_together_may_be_set_one_by_one(admin: Connection, protocol: str) -> None:
    together = {
        "security.protocol": protocol,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
    }
    for name, value in together.items():
        admin.execute("SELECT pipeline_kafka.set_property(%s, %s)", [name, value])
    assert stored(admin) == together


def test_brokers_may_be_changed_while_they_are_read(admin: Connection, kafka: Kafka, topic: MakeTopic) -> None:
    name = topic()
    kafka.produce(name, ["1"])
    flow = Flow(admin, kafka)
    admin.execute("CREATE TABLE t (id int)")
    dead = f"127.0.0.1:{free_port()}"
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [dead])
    flow.begin(name, "t")
    flow.wait_state(name, "t", "starting")
    for host in kafka.bootstrap.split(","):
        admin.execute("SELECT pipeline_kafka.add_broker(%s)", [host])
    flow.read(name)
    admin.execute("SELECT pipeline_kafka.remove_broker(%s)", [dead])
    kafka.produce(name, ["2"])
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]


def test_a_wrong_broker_is_replaced_within_seconds(admin: Connection, kafka: Kafka, topic: MakeTopic) -> None:
    name, flow = topic(), Flow(admin, kafka)
    admin.execute("CREATE TABLE t (id int)")
    dead = f"127.0.0.1:{free_port()}"
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [dead])
    flow.begin(name, "t")
    flow.wait_state(name, "t", "failing", lambda row: row["last_sqlstate"] == "08006")
    with admin.transaction():
        admin.execute("SELECT pipeline_kafka.add_broker(%s)", [kafka.bootstrap])
        admin.execute("SELECT pipeline_kafka.remove_broker(%s)", [dead])
    wait_until(
        lambda: flow.status(name, "t"),
        "the right broker is read from, and the wrong one forgotten",
        5,
        accept=lambda row: (row["state"], row["last_error"]) == ("running", None),
    )


def test_without_a_broker_a_consumer_says_so(admin: Connection, kafka: Kafka, topic: MakeTopic) -> None:
    name, flow = topic(), Flow(admin, kafka)
    admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    row = flow.wait_state(name, "t", "failing")
    said = "Kafka's connection failed: no broker is configured"
    assert (row["last_sqlstate"], row["last_error"].splitlines()[0]) == ("55000", said)
    assert "add_broker()" in row["last_error"]
    assert flow.value("SELECT last_error FROM pipeline_kafka.workers_status") == said
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [kafka.bootstrap])
    flow.wait_state(name, "t", "running", lambda row: row["last_error"] is None)


def test_properties_may_be_changed_while_they_are_used(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.kafka.produce(name, ["1"])
    flow.read(name)
    flow.set_property("security.protocol", "SSL")
    said = "SELECT last_error FROM pipeline_kafka.workers_status"
    wait_until(
        lambda: flow.value(said), "the worker cannot speak to Kafka", accept=lambda error: error and "SSL" in error
    )
    flow.kafka.produce(name, ["2"])
    flow.admin.execute("SELECT pipeline_kafka.unset_property('security.protocol')")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]

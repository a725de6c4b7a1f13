"""Brokers that a ZooKeeper lists: discovered, read from, kept as they are there, and kept while it is away."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.fix_cluster import Connection
from tests.fix_kafka import MakeTopic
from tests.fix_zookeeper import CHROOT
from tests.integration.flow import Flow
from tests.integration.secured import checked
from tests.testbed.database import Database
from tests.testbed.kafka import Kafka
from tests.testbed.ports import free_port
from tests.testbed.postgres import bindir
from tests.testbed.process import plain_environment, run
from tests.testbed.zookeeper import ZooKeeper, ZooKeeperBroker

DISCOVER = "SELECT * FROM pipeline_kafka.discover_brokers(%s)"


def brokers(connection: Connection) -> list[tuple[Any, ...]]:
    """(host, does a ZooKeeper list it?) of the bootstrap servers."""
    query = "SELECT host, zookeeper IS NOT NULL FROM pipeline_kafka.brokers ORDER BY host"
    return connection.execute(query).fetchall()


def register(keeper: ZooKeeper, chroot: str, **brokers: str) -> str:
    """Register brokers, by b<id>, below a chroot, each with one listener of PLAINTEXT; the ZooKeeper's address."""
    for name, address in brokers.items():
        node = json.dumps({"version": 3, "endpoints": [f"PLAINTEXT://{address}"]})
        keeper.write({f"{chroot}/brokers/ids/{name.removeprefix('b')}": node})
    return f"{keeper.address}{chroot}"


def unregister(keeper: ZooKeeper, chroot: str, broker: int) -> None:
    with keeper.client() as client:
        client.delete(f"{chroot}/brokers/ids/{broker}")


def test_brokers_of_a_real_kafka_are_discovered_and_read(
    admin: Connection, old_kafka: ZooKeeperBroker, topic: MakeTopic
) -> None:
    rows = admin.execute(DISCOVER, [old_kafka.zookeeper]).fetchall()
    assert rows == [(1, old_kafka.bootstrap)]
    assert brokers(admin) == [(old_kafka.bootstrap, True)]
    assert [(row["host"], row["step"], row["source"]) for row in checked(admin)] == [
        (old_kafka.bootstrap, "ok", "zookeeper")
    ]
    name = topic(on=old_kafka)
    flow = Flow(admin, old_kafka)
    admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    old_kafka.produce(name, ["1", "2"])
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]


def test_the_listener_is_that_of_the_protocol_or_name_given(admin: Connection, old_kafka: ZooKeeperBroker) -> None:
    query = "SELECT host FROM pipeline_kafka.discover_brokers(%s, %s)"
    (named,) = admin.execute(query, [old_kafka.zookeeper, "PROXIED"]).fetchall()
    assert named == (str(old_kafka.proxy_address),)
    assert brokers(admin) == [(str(old_kafka.proxy_address), True)]
    with pytest.raises(psycopg.errors.UndefinedObject, match='has a listener "SASL_SSL"') as missing:
        admin.execute(query, [old_kafka.zookeeper, "SASL_SSL"])
    assert "PLAINTEXT (PLAINTEXT), PROXIED (PLAINTEXT)" in (missing.value.diag.message_hint or "")
    admin.execute("SELECT pipeline_kafka.set_property('security.protocol', 'SASL_SSL')")
    with pytest.raises(psycopg.errors.UndefinedObject, match='has a listener "SASL_SSL"'):
        admin.execute(query, [old_kafka.zookeeper, None])
    assert brokers(admin) == [(str(old_kafka.proxy_address), True)]


def test_what_cannot_be_discovered_is_said(admin: Connection, zookeeper: ZooKeeper) -> None:
    zookeeper.write({"/none/brokers/ids": ""})
    for address, error, words in [
        ("zk:port", psycopg.errors.InvalidParameterValue, "is no address"),
        (None, psycopg.errors.InvalidParameterValue, "is no address"),
        (f"{zookeeper.address}/elsewhere", psycopg.errors.UndefinedObject, "has no node /brokers/ids"),
        (f"{zookeeper.address}/none", psycopg.errors.ObjectNotInPrerequisiteState, "no broker is registered"),
    ]:
        with pytest.raises(error, match=words):
            admin.execute(DISCOVER, [address])
    with pytest.raises(psycopg.errors.ConnectionFailure, match="did not answer within"):
        admin.execute("SELECT pipeline_kafka.discover_brokers(%s, timeout => 700)", [f"127.0.0.1:{free_port()}"])
    assert admin.execute("SELECT * FROM pipeline_kafka.zookeepers").fetchall() == []


def test_discovered_brokers_live_beside_added_ones(admin: Connection, zookeeper: ZooKeeper) -> None:
    address = register(zookeeper, "/beside", b1="kafka1:9092", b2="kafka2:9092")
    admin.execute("SELECT pipeline_kafka.add_broker('kafka1:9092, own:9092')")
    admin.execute(DISCOVER, [address])
    assert brokers(admin) == [("kafka1:9092", False), ("kafka2:9092", True), ("own:9092", False)]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="registered in ZooKeeper"):
        admin.execute("SELECT pipeline_kafka.remove_broker('kafka2:9092')")
    admin.execute("SELECT pipeline_kafka.remove_broker('own:9092')")
    register(zookeeper, "/beside", b2="kafka3:9092")
    admin.execute(DISCOVER, [address])
    assert brokers(admin) == [("kafka1:9092", False), ("kafka3:9092", True)]
    admin.execute("SELECT pipeline_kafka.add_broker('kafka3:9092')")
    assert admin.execute("SELECT pipeline_kafka.remove_zookeeper(%s)", [address]).fetchone() == ("success",)
    assert brokers(admin) == [("kafka1:9092", False), ("kafka3:9092", False)]
    with pytest.raises(psycopg.errors.UndefinedObject, match="is not configured"):
        admin.execute("SELECT pipeline_kafka.remove_zookeeper(%s)", [address])


def test_a_worker_keeps_the_list_also_while_zookeeper_is_away(
    admin: Connection, kafka: Kafka, own_zookeeper: ZooKeeper, topic: MakeTopic
) -> None:
    name = topic()
    flow = Flow(admin, kafka)
    dead = f"127.0.0.1:{free_port()}"
    address = register(own_zookeeper, CHROOT, b1=kafka.bootstrap, b2=dead)
    admin.execute(DISCOVER, [address])
    admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    kafka.produce(name, ["1"])
    flow.read(name)
    hosts = "SELECT array_agg(host ORDER BY host) FROM pipeline_kafka.brokers"
    unregister(own_zookeeper, CHROOT, 2)
    flow.wait(hosts, [kafka.bootstrap], "the broker that went is gone")

    own_zookeeper.stop()
    flow.wait("SELECT error IS NOT NULL FROM pipeline_kafka.zookeepers", True, "it is said that ZooKeeper is away")
    kafka.produce(name, ["2"])
    flow.read(name)
    assert flow.value(hosts) == [kafka.bootstrap]

    own_zookeeper.start()
    register(own_zookeeper, CHROOT, b3=dead)
    flow.wait(hosts, sorted([kafka.bootstrap, dead]), "a new broker is there")
    assert flow.value("SELECT error FROM pipeline_kafka.zookeepers") is None
    for broker in (1, 3):
        unregister(own_zookeeper, CHROOT, broker)
    flow.wait("SELECT error LIKE 'no broker is registered%%' FROM pipeline_kafka.zookeepers", True, "none is there")
    assert flow.value(hosts) == sorted([kafka.bootstrap, dead])
    kafka.produce(name, ["3"])
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2, 3]


def test_a_dump_takes_zookeepers_and_their_brokers_along(
    admin: Connection, database: Database, zookeeper: ZooKeeper
) -> None:
    address = register(zookeeper, "/dumped", b1="kafka1:9092")
    admin.execute(DISCOVER, [address])
    dump = run([bindir() / "pg_dump", f"--dbname={database.dsn()}", "--data-only"], env=plain_environment())
    assert dump.index(f"\n{address}\t") < dump.index(f"\nkafka1:9092\t{address}")

"""Looking at consumer groups, in Kafka as it is and as it was with ZooKeeper."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fix_cluster import Connect, Connection
from tests.fix_kafka import MakeTopic, link, unique_name
from tests.integration.flow import Flow
from tests.integration.groups import commit, member, old_offsets
from tests.testbed.broker import Broker
from tests.testbed.kafka import Kafka
from tests.testbed.ports import free_port
from tests.testbed.zookeeper import ZooKeeper, ZooKeeperBroker

Rows = list[tuple[Any, ...]]


@pytest.fixture(params=["broker", "old_kafka"], ids=["4.2.0", "3.9.1"])
def cluster_of(request: pytest.FixtureRequest) -> Kafka:
    """Kafka of either kind."""
    kafka: Kafka = request.getfixturevalue(request.param)
    return kafka


@pytest.fixture
def asker(admin: Connection, cluster_of: Kafka) -> Connection:
    """A session that knows that Kafka."""
    link(admin, cluster_of.bootstrap)
    return admin


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group's name that no other test has."""
    return f"group-{unique_name(request)}"


def rows(connection: Connection, query: str, *values: Any) -> Rows:
    return connection.execute(query.encode(), values).fetchall()


def test_a_group_with_a_member(asker: Connection, cluster_of: Kafka, topic: MakeTopic, group: str) -> None:
    name = topic(2, on=cluster_of)
    with member(cluster_of, group, name, client_id="reader", group_instance_id="one"):
        ((broker_id, host, port, state),) = rows(asker, "SELECT * FROM pipeline_kafka.group_coordinator(%s)", group)
        assert (broker_id, f"{host}:{port}", state) == (1, cluster_of.bootstrap, "Stable")
        assert (group, "Stable", "classic") in rows(asker, "SELECT * FROM pipeline_kafka.groups()")
        query = "SELECT instance_id, client_id, host, assigned FROM pipeline_kafka.group_members(%s)"
        assert rows(asker, query, group) == [("one", "reader", "127.0.0.1", {name: [0, 1]})]


def test_a_group_of_the_newer_protocol(linked: Connection, kafka: Kafka, topic: MakeTopic, group: str) -> None:
    name = topic(2)
    with member(kafka, group, name, group_protocol="consumer"):
        assert (group, "Stable", "consumer") in rows(linked, "SELECT * FROM pipeline_kafka.groups()")
        query = "SELECT assigned FROM pipeline_kafka.group_members(%s)"
        assert rows(linked, query, group) == [({name: [0, 1]},)]


def test_committed_offsets(asker: Connection, cluster_of: Kafka, topic: MakeTopic, group: str) -> None:
    name, other = topic(3, on=cluster_of), topic(on=cluster_of)
    commit(cluster_of, group, name, {2: 7, 0: 3}, "by hand")
    commit(cluster_of, group, other, {0: 1})
    query = "SELECT topic, partition, committed_offset, metadata FROM pipeline_kafka.committed_offsets"
    here = [(name, 0, 3, "by hand"), (name, 2, 7, "by hand")]
    assert rows(asker, f"{query}(%s)", group) == sorted([*here, (other, 0, 1, None)])
    assert rows(asker, f"{query}(%s, %s)", group, name) == here
    assert rows(asker, f"{query}(%s, 'no-such-topic')", group) == []
    assert rows(asker, "SELECT * FROM pipeline_kafka.group_members(%s)", group) == []


def test_looking_makes_no_group_and_joins_none(asker: Connection, topic: MakeTopic, group: str) -> None:
    coordinator = "SELECT id, state FROM pipeline_kafka.group_coordinator(%s)"
    assert rows(asker, coordinator, group) == [(1, "Dead")]
    for function in ("committed_offsets", "group_members", "compare_offsets"):
        with pytest.raises(psycopg.errors.UndefinedObject, match=f'Kafka has no consumer group "{group}"'):
            rows(asker, f"SELECT * FROM pipeline_kafka.{function}(%s)", group)
    assert rows(asker, coordinator, group) == [(1, "Dead")]
    names = [row[0] for row in rows(asker, "SELECT * FROM pipeline_kafka.groups()")]
    assert group not in names
    assert [name for name in names if "nobody" in name] == []


@pytest.mark.parametrize("function", ["group_coordinator", "group_members", "committed_offsets", "compare_offsets"])
def test_no_name_is_refused(linked: Connection, function: str) -> None:
    for name in ("", None):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="name of the consumer group is empty"):
            rows(linked, f"SELECT * FROM pipeline_kafka.{function}(%s)", name)


def test_who_may_ask_sees_groups_and_no_secret(linked: Connection, connect: Connect, kafka: Kafka, group: str) -> None:
    linked.execute("DO $$ BEGIN CREATE ROLE group_watcher LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    group_watcher = connect(user="group_watcher")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(group_watcher, "SELECT * FROM pipeline_kafka.groups()")
    linked.execute("GRANT EXECUTE ON FUNCTION pipeline_kafka.group_coordinator TO group_watcher")
    assert rows(group_watcher, "SELECT state FROM pipeline_kafka.group_coordinator(%s)", group) == [("Dead",)]
    linked.execute("DROP OWNED BY group_watcher")


# Coordinators ----------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(folder: Path, zookeeper: ZooKeeper) -> Generator[list[ZooKeeperBroker]]:
    """A cluster of two brokers, each of which can take over the other's groups."""
    settings = {"offsets.topic.replication.factor": 2, "min.insync.replicas": 1}
    brokers = [ZooKeeperBroker(folder / str(id), zookeeper, "/pair", id, settings) for id in (1, 2)]
    for broker in brokers:
        broker.start()
    yield brokers
    for broker in brokers:
        broker.kill9()


def test_a_coordinator_that_moves_is_found_within_the_timeout(admin: Connection, pair: list[ZooKeeperBroker]) -> None:
    """It is not there before the first question, either: Kafka makes its topic of offsets then."""
    link(admin, ",".join(broker.bootstrap for broker in pair))
    coordinator = "SELECT id FROM pipeline_kafka.group_coordinator(%s, 60000)"
    names = iter(f"group-{number}" for number in range(100))
    group = next(name for name in names if rows(admin, coordinator, name) == [(2,)])
    pair[0].create_topic("t")
    commit(pair[0], group, "t", {0: 7})
    pair[1].kill9()
    query = "SELECT committed_offset FROM pipeline_kafka.committed_offsets(%s, timeout => 60000)"
    assert rows(admin, query, group) == [(7,)]
    assert rows(admin, coordinator, group) == [(1,)]


def test_a_coordinator_that_is_absent_is_said_within_the_timeout(admin: Connection, folder: Path) -> None:
    with Broker(folder / "broker", {"offsets.topic.replication.factor": 3}).start() as broker:
        link(admin, broker.bootstrap)
        with pytest.raises(psycopg.errors.CannotConnectNow, match='group "g": no coordinator answered'):
            rows(admin, "SELECT * FROM pipeline_kafka.committed_offsets('g', timeout => 1500)")


# ZooKeeper -------------------------------------------------------------------------------------------------------


@pytest.fixture
def keeper(old_kafka: ZooKeeperBroker) -> str:
    """The address of the session's ZooKeeper, with the chroot of its Kafka."""
    return old_kafka.zookeeper


def test_offsets_in_zookeeper(admin: Connection, zookeeper: ZooKeeper, keeper: str, group: str) -> None:
    zookeeper.write(old_offsets(group, "t", {0: 5, 2: 9, 10: 1}) | old_offsets(group, "u", {0: 4}))
    zookeeper.write({f"/kafka/consumers/{group}/offsets/u/1": ""})
    query = "SELECT topic, partition, committed_offset FROM pipeline_kafka.zookeeper_offsets"
    everything = [("t", 0, 5), ("t", 2, 9), ("t", 10, 1), ("u", 0, 4), ("u", 1, None)]
    assert rows(admin, f"{query}(%s, zookeeper => %s)", group, keeper) == everything
    assert rows(admin, f"{query}(%s, 'u', %s)", group, keeper) == everything[3:]
    assert rows(admin, f"{query}(%s, 'v', %s)", group, keeper) == []
    assert rows(admin, f"{query}(%s, '..', %s)", group, keeper) == []
    recent = "SELECT bool_and(written_at > now() - interval '1 h') FROM pipeline_kafka.zookeeper_offsets(%s, 't', %s)"
    assert rows(admin, recent, group, keeper) == [(True,)]


def test_a_second_host_answers_where_the_first_does_not(
    admin: Connection, zookeeper: ZooKeeper, keeper: str, group: str
) -> None:
    zookeeper.write(old_offsets(group, "t", {0: 5}))
    query = "SELECT committed_offset FROM pipeline_kafka.zookeeper_offsets(%s, 't', %s)"
    assert rows(admin, query, group, f"127.0.0.1:{free_port()},{keeper}") == [(5,)]


def test_a_group_that_zookeeper_does_not_have(admin: Connection, zookeeper: ZooKeeper, keeper: str, group: str) -> None:
    zookeeper.write(old_offsets(group, "t", {0: 5}))
    query = "SELECT * FROM pipeline_kafka.zookeeper_offsets(%s, NULL, %s)"
    with pytest.raises(psycopg.errors.UndefinedObject, match='has no consumer group "another"') as caught:
        rows(admin, query, "another", keeper)
    assert group in (caught.value.diag.message_detail or "")
    assert (caught.value.diag.message_primary or "").startswith(f"ZooKeeper {keeper} has no consumer group")
    with pytest.raises(psycopg.errors.UndefinedObject, match="chroot"):
        rows(admin, query, group, str(zookeeper.address))


def test_a_node_that_is_no_offset_is_named(admin: Connection, zookeeper: ZooKeeper, keeper: str, group: str) -> None:
    zookeeper.write({f"/kafka/consumers/{group}/offsets/t/0": '{"offset": 5}'})
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match=f"/consumers/{group}/offsets/t/0"):
        rows(admin, "SELECT * FROM pipeline_kafka.zookeeper_offsets(%s, 't', %s)", group, keeper)


@pytest.mark.parametrize("address", ["", "a b:2181", "host:port", "host:2181/", "host:2181/a//b", "[::1:2181"])
def test_an_address_is_checked(admin: Connection, address: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is no address of a ZooKeeper"):
        rows(admin, "SELECT * FROM pipeline_kafka.zookeeper_offsets('g', 't', %s)", address)


@pytest.mark.parametrize("name", ["", "a/b", ".."])
def test_a_name_that_no_node_can_have_is_refused(admin: Connection, keeper: str, name: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is no name of a consumer group in ZooKeeper"):
        rows(admin, "SELECT * FROM pipeline_kafka.zookeeper_offsets(%s, NULL, %s)", name, keeper)


def test_a_host_that_is_not_known_is_said(admin: Connection) -> None:
    address = "no-such-host.invalid:2181"
    with pytest.raises(psycopg.errors.ConnectionFailure, match=f"{address} did not answer .*[Rr]esolve"):
        rows(admin, "SELECT * FROM pipeline_kafka.zookeeper_offsets('g', NULL, %s, 2000)", address)


def test_the_one_zookeeper_that_lists_brokers_need_not_be_named(
    admin: Connection, zookeeper: ZooKeeper, keeper: str, group: str
) -> None:
    zookeeper.write(old_offsets(group, "t", {0: 5}))
    admin.execute("INSERT INTO pipeline_kafka.zookeepers (address) VALUES (%s)", [keeper])
    query = "SELECT committed_offset FROM pipeline_kafka.zookeeper_offsets(%s)"
    assert rows(admin, query, group) == [(5,)]
    admin.execute("INSERT INTO pipeline_kafka.zookeepers (address) VALUES ('another:2181')")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no ZooKeeper is named"):
        rows(admin, query, group)


def test_a_zookeeper_must_be_named(admin: Connection) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no ZooKeeper is named"):
        rows(admin, "SELECT * FROM pipeline_kafka.zookeeper_offsets('g')")


def test_a_zookeeper_that_is_not_there_is_said_within_the_timeout(admin: Connection) -> None:
    address = f"127.0.0.1:{free_port()}/kafka"
    with pytest.raises(psycopg.errors.ConnectionFailure, match=r"did not answer within 1 s: .*refused"):
        rows(admin, "SELECT * FROM pipeline_kafka.zookeeper_offsets('g', 't', %s, 1000)", address)


def test_a_zookeeper_that_hangs_is_said_within_the_timeout(admin: Connection, own_zookeeper: ZooKeeper) -> None:
    own_zookeeper.pause()
    with pytest.raises(psycopg.errors.ConnectionFailure, match=r"did not answer within 0\.5 s"):
        rows(admin, "SELECT * FROM pipeline_kafka.zookeeper_offsets('g', 't', %s, 500)", str(own_zookeeper.address))


# Both, beside our own --------------------------------------------------------------------------------------------

COMPARED = """SELECT partition, low, high, kafka_offset, kafka_lag, zookeeper_offset, zookeeper_lag, relation::text,
                     next_offset, lag
              FROM pipeline_kafka.compare_offsets(%s, %s, %s)"""


def test_both_offsets_beside_watermarks_and_ours(
    admin: Connection, zookeeper: ZooKeeper, old_kafka: ZooKeeperBroker, topic: MakeTopic, group: str
) -> None:
    link(admin, old_kafka.bootstrap)
    flow, name, keeper = Flow(admin, old_kafka), topic(3, on=old_kafka), old_kafka.zookeeper
    for partition, count in enumerate((5, 4, 1)):
        old_kafka.produce(name, ["x"] * count, partition=partition)
    commit(old_kafka, group, name, {0: 3})
    zookeeper.write(old_offsets(group, name, {0: 2, 1: 4}) | old_offsets(group, "gone", {0: 7}))
    admin.execute("CREATE TABLE t (value text); CREATE TABLE u (value text)")
    flow.begin(name, "t")
    flow.read(name)
    theirs = [(0, 0, 5, 3, 2, 2, 3), (1, 0, 4, None, None, 4, 0), (2, 0, 1, None, None, None, None)]
    ours = [("t", 5, 0), ("t", 4, 0), ("t", 1, 0)]
    assert rows(admin, COMPARED, group, name, keeper) == [(*t, *o) for t, o in zip(theirs, ours, strict=True)]
    flow.begin(name, "u", start_offset=1)
    flow.read(name)
    assert [row[7:] for row in rows(admin, COMPARED, group, name, None)] == [
        pair for t in ours for pair in (t, ("u", *t[1:]))
    ]
    gone = (0, None, None, None, None, 7, None, None, None, None)
    assert gone in rows(admin, COMPARED, group, None, keeper)
    assert rows(admin, COMPARED, group, "no-such-topic", keeper) == []


def test_a_group_that_only_zookeeper_has_is_enough(
    admin: Connection, zookeeper: ZooKeeper, old_kafka: ZooKeeperBroker, topic: MakeTopic, group: str
) -> None:
    link(admin, old_kafka.bootstrap)
    name = topic(on=old_kafka)
    zookeeper.write(old_offsets(group, name, {0: 2}))
    assert rows(admin, COMPARED, group, None, old_kafka.zookeeper) == [(0, 0, 0, None, None, 2, 0, None, None, None)]
    with pytest.raises(psycopg.errors.UndefinedObject, match=f'Kafka has no consumer group "{group}"'):
        rows(admin, COMPARED, group, None, None)

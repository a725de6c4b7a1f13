"""Taking over from a consumer group: each partition starts where the group stood, in Kafka's or ZooKeeper's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.fix_cluster import Connect, Connection
from tests.fix_kafka import MakeTopic, link, unique_name
from tests.integration.flow import Flow
from tests.integration.groups import commit, member, old_offsets
from tests.integration.roles import make_role, run
from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until
from tests.testbed.zookeeper import ZooKeeper, ZooKeeperBroker

Places = list[tuple[int, int]]


@pytest.fixture
def old_flow(admin: Connection, old_kafka: ZooKeeperBroker) -> Flow:
    """A database of the test's own that knows the session's Kafka of old."""
    link(admin, old_kafka.bootstrap)
    return Flow(admin, old_kafka)


@pytest.fixture(params=["flow", "old_flow"], ids=["4.2.0", "3.9.1"])
def either(request: pytest.FixtureRequest) -> Flow:
    """A database that knows Kafka of either kind."""
    flow: Flow = request.getfixturevalue(request.param)
    return flow


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group's name that no other test has."""
    return f"group-{unique_name(request)}"


@pytest.fixture
def places(admin: Connection) -> Iterator[list[str]]:
    """A table t that records which messages landed in it, and the notices of the session."""
    said: list[str] = []
    admin.add_notice_handler(lambda diagnostic: said.append(diagnostic.message_primary or ""))
    admin.execute("CREATE TABLE t (kafka_partition int, kafka_offset bigint, value text)")
    yield said


def landed(flow: Flow) -> Places:
    return [(row[0], row[1]) for row in flow.rows("SELECT kafka_partition, kafka_offset FROM t ORDER BY 1, 2")]


def filled(kafka: Kafka, topic: MakeTopic, partitions: int, count: int) -> str:
    """A topic with so many messages in each partition."""
    name = topic(partitions, on=kafka)
    for partition in range(partitions):
        kafka.produce(name, ["x"] * count, partition=partition)
    return name


def start(flow: Flow, topic: str, group: str, **options: Any) -> None:
    flow.begin(topic, "t", **{"start_offset": None, "start_from_group": group, **options})


def test_a_group_stops_and_we_go_on(either: Flow, topic: MakeTopic, group: str, places: list[str]) -> None:
    """Every message is read once, by the group or by us."""
    name = filled(either.kafka, topic, 1, 6)
    theirs: Places = []
    with member(either.kafka, group, name) as consumer:
        wait_until(lambda: rewound(consumer, TopicPartition(name, 0, 0)), f"{group} reads from the beginning")
        while len(theirs) < 4:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            theirs.append((0, message.offset() or 0))
            consumer.commit(message=message, asynchronous=False)
        with pytest.raises(psycopg.errors.ObjectInUse, match=f'group "{group}" still has members'):
            start(either, name, group)
        assert either.rows("SELECT * FROM pipeline_kafka.consumers") == []
    start(either, name, group)
    either.read(name)
    assert sorted([*theirs, *landed(either)]) == [(0, offset) for offset in range(6)]
    assert [said for said in places if "has no offset" in said] == []


@pytest.mark.parametrize(("start_offset", "first"), [(None, 5), (-2, 0), (1, 1)])
def test_a_partition_where_it_stood_nowhere_starts_as_ever(
    flow: Flow, topic: MakeTopic, group: str, places: list[str], start_offset: int | None, first: int
) -> None:
    name = filled(flow.kafka, topic, 3, 5)
    commit(flow.kafka, group, name, {0: 3, 1: 5})
    start(flow, name, group, start_offset=start_offset)
    flow.wait_state(name, "t", "running")
    flow.kafka.produce(name, ["last"], partition=2)
    flow.read(name)
    assert landed(flow) == [(0, 3), (0, 4), *((2, offset) for offset in range(first, 6))]
    shown = -1 if start_offset is None else start_offset
    said = f'consumer group "{group}" has no offset in {name}[2]: they start by start_offset, which is {shown}'
    assert said in places


def test_offsets_of_zookeeper_count_where_they_are_asked_for(
    old_flow: Flow, old_kafka: ZooKeeperBroker, zookeeper: ZooKeeper, topic: MakeTopic, group: str, places: list[str]
) -> None:
    name = filled(old_kafka, topic, 2, 5)
    zookeeper.write(old_offsets(group, name, {0: 2, 1: 4}))
    commit(old_kafka, group, name, {0: 1, 1: 1})
    start(old_flow, name, group, start_from="zookeeper", zookeeper=old_kafka.zookeeper)
    old_flow.read(name)
    assert landed(old_flow) == [(0, 2), (0, 3), (0, 4), (1, 4)]


def test_a_member_that_zookeeper_knows_is_a_member(
    old_flow: Flow, old_kafka: ZooKeeperBroker, zookeeper: ZooKeeper, topic: MakeTopic, group: str, places: list[str]
) -> None:
    """Consumers of old may keep their offsets in Kafka already: their membership is in ZooKeeper."""
    name = filled(old_kafka, topic, 1, 5)
    zookeeper.write({**old_offsets(group, name, {0: 2}), f"/kafka/consumers/{group}/ids/reader-1": "{}"})
    commit(old_kafka, group, name, {0: 3})
    for source in ("kafka", "zookeeper"):
        with pytest.raises(psycopg.errors.ObjectInUse) as caught:
            start(old_flow, name, group, start_from=source, zookeeper=old_kafka.zookeeper)
        assert caught.value.diag.message_detail == "They are reader-1."
    start(old_flow, name, group, start_from="zookeeper", zookeeper=old_kafka.zookeeper, start_from_live=True)
    old_flow.read(name)
    assert landed(old_flow) == [(0, 2), (0, 3), (0, 4)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_beside_a_live_group_where_that_is_wanted(
    flow: Flow, topic: MakeTopic, group: str, places: list[str], protocol: str
) -> None:
    name = filled(flow.kafka, topic, 1, 5)
    with member(flow.kafka, group, name, client_id="reader", group_protocol=protocol) as consumer:
        commit_as(consumer, name, 3)
        with pytest.raises(psycopg.errors.ObjectInUse) as caught:
            start(flow, name, group)
        assert caught.value.diag.message_detail == "They are reader at 127.0.0.1."
        start(flow, name, group, start_from_live=True)
        flow.read(name)
        assert landed(flow) == [(0, 3), (0, 4)]


def test_a_known_consumer_is_moved_and_what_is_rolled_back_has_not_happened(
    flow: Flow, topic: MakeTopic, group: str, places: list[str], connect: Connect
) -> None:
    name = filled(flow.kafka, topic, 1, 5)
    commit(flow.kafka, group, name, {0: 3})
    flow.begin(name, "t")
    flow.read(name)
    with connect(autocommit=False) as session:
        start(Flow(session, flow.kafka), name, group)
        assert session.execute("SELECT next_offset FROM pipeline_kafka.offsets").fetchall() == [(3,)]
        session.rollback()
    assert flow.rows("SELECT next_offset FROM pipeline_kafka.offsets") == [(5,)]
    start(flow, name, group)
    flow.wait("SELECT count(*) FROM t", 7, "the last two are read again")
    assert landed(flow) == [(0, offset) for offset in (0, 1, 2, 3, 3, 4, 4)]


def test_topics_of_a_pattern(flow: Flow, topic: MakeTopic, group: str, places: list[str]) -> None:
    names = [filled(flow.kafka, topic, 1, 3) for _ in range(2)]
    for name, offset in zip(names, (1, 2), strict=True):
        commit(flow.kafka, group, name, {0: offset})
    start(flow, f"^{names[0].rpartition('-')[0]}-", group)
    query = "SELECT topic, next_offset FROM pipeline_kafka.offsets"
    flow.wait("SELECT count(*) FROM t", 3, "what the group had not read is read")
    assert sorted(flow.rows(query)) == sorted((name, 3) for name in names)


def test_topics_that_a_pattern_excludes_are_not_asked_about(
    flow: Flow, topic: MakeTopic, group: str, places: list[str]
) -> None:
    name, other = (filled(flow.kafka, topic, 1, 3) for _ in range(2))
    commit(flow.kafka, group, other, {0: 1})
    pattern = f"^{name.rpartition('-')[0]}-"
    with pytest.raises(psycopg.errors.UndefinedObject, match="has no offset in topic"):
        start(flow, pattern, group, exclude=other)
    start(flow, pattern, group, exclude=name)
    flow.wait("SELECT count(*) FROM t", 2, "what the group had not read is read")


def test_an_offset_that_kafka_has_not_any_more_is_a_lost_one(
    flow: Flow, topic: MakeTopic, group: str, places: list[str]
) -> None:
    name = filled(flow.kafka, topic, 1, 5)
    commit(flow.kafka, group, name, {0: 9})
    start(flow, name, group)
    assert "holds offsets 0 to 5, and 9 was to be read next" in flow.wait_state(name, "t", "stopped")["last_error"]


def test_what_is_not_there_is_named(flow: Flow, topic: MakeTopic, group: str, places: list[str]) -> None:
    name, other = filled(flow.kafka, topic, 1, 1), filled(flow.kafka, topic, 1, 1)
    with pytest.raises(psycopg.errors.UndefinedObject, match=f'Kafka has no consumer group "{group}"'):
        start(flow, name, group)
    commit(flow.kafka, group, other, {0: 1})
    with pytest.raises(psycopg.errors.UndefinedObject, match=f'"{group}" has no offset in topic "{name}"') as caught:
        start(flow, name, group)
    assert caught.value.diag.message_detail == f"It has offsets in {other}."
    with pytest.raises(psycopg.errors.UndefinedObject, match='topic "no-such-topic"'):
        start(flow, "no-such-topic", group)
    assert flow.rows("SELECT * FROM pipeline_kafka.consumers") == []


def test_who_may_consume_may_take_over_but_not_name_a_zookeeper(
    flow: Flow, topic: MakeTopic, group: str, places: list[str], connect: Connect
) -> None:
    name, role = filled(flow.kafka, topic, 1, 3), make_role(flow)
    run(flow, "GRANT INSERT ON t TO {}", role)
    commit(flow.kafka, group, name, {0: 2})
    user = connect(user=role)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not have the server connect to a ZooKeeper"):
        flow.begin(name, "t", user, start_offset=None, start_from_group=group, zookeeper="127.0.0.1:22")
    flow.begin(name, "t", user, start_offset=None, start_from_group=group)
    flow.read(name)
    assert landed(flow) == [(0, 2)]


def test_the_groups_name_is_kept_for_kafkas_monitors(
    flow: Flow, topic: MakeTopic, group: str, places: list[str]
) -> None:
    name = filled(flow.kafka, topic, 1, 5)
    commit(flow.kafka, group, name, {0: 3})
    start(flow, name, group, group_id=group)
    flow.read(name)
    assert landed(flow) == [(0, 3), (0, 4)]
    query = "SELECT committed_offset FROM pipeline_kafka.committed_offsets(%s)"
    flow.wait(query, 5, "Kafka is told under the group's name", group)
    assert flow.value("SELECT count(*) FROM pipeline_kafka.group_members(%s)", group) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start_from": "kafka"}, "go with start_from_group"),
        ({"zookeeper": "h:2181"}, "go with start_from_group"),
        ({"start_from_live": False}, "go with start_from_group"),
        ({"start_from_group": "g", "start_from": "storm"}, "start_from is "),
        ({"start_from_group": "g", "start_from": "zookeeper"}, "no ZooKeeper is named"),
        ({"start_from_group": "", "start_from": "kafka"}, "name of the consumer group is empty"),
    ],
)
def test_arguments_are_checked(flow: Flow, places: list[str], options: dict[str, Any], said: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=said):
        flow.begin("t", "t", start_offset=None, **options)


def commit_as(consumer: Any, topic: str, offset: int) -> None:
    """Commit as a member of the group, which only members may while it has some."""
    place = consumer.assignment()[0]
    assert place.topic == topic
    place.offset = offset
    consumer.commit(offsets=[place], asynchronous=False)


def rewound(consumer: Any, place: TopicPartition) -> bool:
    """Seek, which is refused until fetching has begun."""
    try:
        consumer.seek(place)
    except KafkaException:
        return False
    return True

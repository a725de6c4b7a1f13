"""Where a consumer starts, and what becomes of it when Kafka no longer has its offset."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from tests.fix_kafka import MakeTopic
from tests.fix_worker import MakeWorker
from tests.integration.flow import Flow
from tests.testbed.cluster import Cluster


@pytest.mark.parametrize(("start_offset", "first"), [(-2, 0), (-1, 5), (None, 5), (0, 0), (3, 3), (99, 5)])
def test_a_new_consumer_starts_where_it_is_told(
    flow: Flow, topic: MakeTopic, start_offset: int | None, first: int
) -> None:
    name = topic(2)
    produce_each(flow, name, 5, partitions=2)
    places(flow)
    flow.begin(name, "t", start_offset=start_offset)
    flow.wait_state(name, "t", "running")
    produce_each(flow, name, 1, partitions=2)
    flow.read(name)
    assert landed(flow) == [(partition, offset) for partition in range(2) for offset in range(first, 6)]


def test_a_start_that_kafka_has_not_any_more_is_taken_as_the_first_it_has(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    produce_each(flow, name, 5)
    delete_before(flow, name, 3)
    places(flow)
    flow.begin(name, "t", start_offset=1)
    flow.read(name)
    assert landed(flow) == [(0, 3), (0, 4)]


def test_a_known_consumer_goes_on_without_a_start_and_moves_with_one(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    produce_each(flow, name, 4)
    places(flow)
    flow.begin(name, "t")
    flow.read(name)
    flow.end(name, "t")
    produce_each(flow, name, 2)
    flow.begin(name, "t", start_offset=None)
    flow.read(name)
    assert landed(flow) == [(0, offset) for offset in range(6)]
    flow.begin(name, "t", start_offset=4)
    flow.wait("SELECT count(*) FROM t", 8, "the last two are read again")
    assert landed(flow) == [(0, offset) for offset in (0, 1, 2, 3, 4, 4, 5, 5)]


def test_the_end_is_resolved_once_and_not_again_by_a_worker_that_comes_back(
    flow: Flow, topic: MakeTopic, no_local_workers: None, external_worker: MakeWorker
) -> None:
    name = topic(2)
    produce_each(flow, name, 3, partitions=2)
    places(flow)
    flow.begin(name, "t", start_offset=-1)
    first = external_worker(slot=100)
    flow.wait_state(name, "t", "running")
    first.kill9()
    produce_each(flow, name, 2, partitions=2)
    external_worker(slot=100)
    flow.read(name)
    assert landed(flow) == [(0, 3), (0, 4), (1, 3), (1, 4)]


@pytest.mark.parametrize(
    ("policy", "offsets", "lost"), [("earliest", [0, 1, 2, 8, 9, 10], 5), ("latest", [0, 1, 2, 10], 7)]
)
def test_a_lost_offset_is_passed_over_and_counted(
    flow: Flow, topic: MakeTopic, cluster: Cluster, policy: str, offsets: list[int], lost: int
) -> None:
    name, seen = lose_offset(flow, topic), cluster.log_size()
    flow.begin(name, "t", start_offset=None, on_offset_lost=policy)
    flow.read(name)
    produce_each(flow, name, 1)
    flow.read(name)
    assert landed(flow) == [(0, offset) for offset in offsets]
    assert flow.status(name, "t")["lost"] == lost
    assert "KafkaException" not in cluster.log(seen)  # it goes on as it is: no new client is needed


def test_a_lost_offset_stops_the_consumer_until_it_is_told_where_to_go_on(
    flow: Flow, topic: MakeTopic, cluster: Cluster
) -> None:
    name, seen = lose_offset(flow, topic), cluster.log_size()
    flow.admin.execute("CREATE TABLE careless (kafka_partition int, kafka_offset bigint, value text)")
    flow.begin(name, "careless", start_offset=None)
    flow.begin(name, "t", start_offset=None)
    status = flow.wait_state(name, "t", "stopped")
    assert f"{name}[0] holds offsets 8 to 10, and 3 was to be read next" in status["last_error"]
    assert "start_offset" in status["last_error"]
    produce_each(flow, name, 1)
    flow.read(name, "careless")
    assert flow.status(name, "careless")["state"] == "running"
    flow.begin(name, "t", start_offset=-2)
    flow.read(name)
    assert landed(flow) == [(0, offset) for offset in (0, 1, 2, 8, 9, 10)]
    assert "KafkaException" not in cluster.log(seen)


def test_a_topic_made_again_and_shorter_stops_the_consumer(flow: Flow, topic: MakeTopic) -> None:
    name = read_and_end(flow, topic, 5)
    make_again(flow, name, 2)
    flow.begin(name, "t", start_offset=None)
    status = flow.wait_state(name, "t", "stopped")
    assert name in status["last_error"]
    flow.begin(name, "t", start_offset=-2)
    flow.read(name)
    assert landed(flow) == [(0, offset) for offset in (0, 0, 1, 1, 2, 3, 4)]


def test_a_topic_made_again_and_longer_is_not_read_from_the_middle(flow: Flow, topic: MakeTopic) -> None:
    name = read_and_end(flow, topic, 5)
    make_again(flow, name, 10)
    flow.begin(name, "t", start_offset=None)
    status = flow.wait_state(name, "t", "stopped")
    assert name in status["last_error"]
    assert landed(flow) == [(0, offset) for offset in range(5)]


def test_a_topic_made_again_while_it_is_read_is_read_from_its_beginning(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.look_often()
    places(flow)
    produce_each(flow, name, 5)
    flow.begin(name, "t", on_offset_lost="earliest")
    flow.read(name)
    make_again(flow, name, 2)
    flow.read(name)
    assert landed(flow) == [(0, offset) for offset in (0, 0, 1, 1, 2, 3, 4)]
    produce_each(flow, name, 8)
    flow.read(name)
    assert flow.value("SELECT count(*) FROM t") == 15


def places(flow: Flow) -> None:
    """A table that records which messages landed in it."""
    flow.admin.execute("CREATE TABLE t (kafka_partition int, kafka_offset bigint, value text)")


def landed(flow: Flow) -> list[tuple[int, int]]:
    return [(row[0], row[1]) for row in flow.rows("SELECT kafka_partition, kafka_offset FROM t ORDER BY 1, 2")]


def produce_each(flow: Flow, topic: str, count: int, partitions: int = 1) -> None:
    """So many messages to each partition."""
    for partition in range(partitions):
        flow.kafka.produce(topic, ["x"] * count, partition=partition)


def read_and_end(flow: Flow, topic: MakeTopic, count: int) -> str:
    """A topic of which a consumer that was ended has read so many messages; no worker has more of them in hand."""
    name = topic()
    places(flow)
    produce_each(flow, name, count)
    flow.begin(name, "t")
    flow.read(name)
    flow.end(name, "t")
    flow.wait_alone()
    return name


def lose_offset(flow: Flow, topic: MakeTopic) -> str:
    """A topic that holds offsets 8 and 9, of which a consumer that was ended has read 0 to 2."""
    name = read_and_end(flow, topic, 3)
    produce_each(flow, name, 7)
    delete_before(flow, name, 8)
    return name


def delete_before(flow: Flow, topic: str, offset: int) -> None:
    place = TopicPartition(topic, 0, offset)
    admin = flow.kafka.admin()
    admin.delete_records([place])[place].result(30)


def make_again(flow: Flow, topic: str, count: int) -> None:
    """Delete a topic, and make one of the same name with so many messages."""
    flow.kafka.delete_topic(topic)
    flow.kafka.create_topic(topic)
    produce_each(flow, topic, count)

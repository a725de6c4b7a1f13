"""Offsets without a message: transactions and compaction leave them. And what Kafka is told of offsets."""

from __future__ import annotations

from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.testbed.broker import Broker
from tests.testbed.wait import wait_until


def test_aborted_messages_never_land_and_leave_no_lag(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    in_a_transaction(flow, name, ["1", "2"], commit=True)
    in_a_transaction(flow, name, ["666", "667"], commit=False)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]
    assert flow.kafka.high_watermarks(name) == {0: 6}  # two markers among them
    flow.wait("SELECT lag FROM pipeline_kafka.consumers_status", 0, "no lag is left")
    assert flow.status(name, "t")["messages"] == 2


def test_only_aborted_messages(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    in_a_transaction(flow, name, ["666"], commit=False)
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == []


def test_an_open_transaction_holds_back_what_comes_after_it(flow: Flow, topic: MakeTopic) -> None:
    name, other = topic(), topic()
    flow.admin.execute("CREATE TABLE t (id int); CREATE TABLE other (id int)")
    flow.begin(name, "t")
    flow.begin(other, "other")
    flow.kafka.produce(name, ["1"])
    producer = flow.kafka.producer(transactional_id=name)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, "2")
    producer.flush(30)
    flow.kafka.produce(name, ["3"])
    flow.kafka.produce(other, ["1"])
    flow.read(other)
    flow.wait("SELECT count(*) FROM t", 1, "what came before the transaction is in")
    producer.commit_transaction(30)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2, 3]


def in_a_transaction(flow: Flow, topic: str, values: list[str], commit: bool) -> None:
    producer = flow.kafka.producer(transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def test_compaction_takes_messages_away_before_and_behind_the_offset(flow: Flow, topic: MakeTopic) -> None:
    clean_often(flow)
    name = topic(config={"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.001"})
    flow.admin.execute("CREATE TABLE t (id int, kafka_offset int)")
    produce_segments(flow, name, 0, 4)
    flow.begin(name, "t")
    flow.read(name)
    flow.end(name, "t")
    flow.wait_alone()
    landed = flow.value("SELECT count(*) FROM t")
    produce_segments(flow, name, 4, 10)
    wait_until(lambda: left(flow, name), "all but the last are cleaned away", accept=[8, 9].__eq__)
    flow.begin(name, "t", start_offset=None)
    flow.read(name)
    assert flow.column("SELECT kafka_offset FROM t WHERE kafka_offset >= 4") == [8, 9]
    flow.wait("SELECT lag FROM pipeline_kafka.consumers_status", 0, "no lag is left")
    assert flow.status(name, "t")["messages"] == landed + 2


def produce_segments(flow: Flow, topic: str, start: int, stop: int) -> None:
    """Values of one key, each in a segment of its own; all but the last segment can be compacted."""
    for n in range(start, stop):
        flow.kafka.produce(topic, [("key", str(n))])


def left(flow: Flow, topic: str) -> list[int]:
    return [message.offset() or 0 for message in flow.kafka.messages(topic)]


def clean_often(flow: Flow) -> None:
    """Let a broker of our own compact at once; somebody else's does it when it likes."""
    if isinstance(flow.kafka, Broker):
        often = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[often])
        admin = flow.kafka.admin()
        admin.incremental_alter_configs([resource])[resource].result(30)


def test_kafka_is_told_how_far_the_groups_are(flow: Flow, topic: MakeTopic) -> None:
    name = topic(2)
    flow.kafka.produce(name, [str(n) for n in range(50)], partition=0)
    flow.kafka.produce(name, [str(n) for n in range(30)], partition=1)
    flow.admin.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    flow.begin(name, "t")
    flow.begin(name, "u", group_id="of our own " + name)
    flow.read(name)
    system = flow.value("SELECT system_identifier FROM pg_control_system()")
    for group in (f"pipeline_kafka-{system}-{flow.admin.info.dbname}", "of our own " + name):
        wait_committed(flow, group, name, {0: 50, 1: 30})


def test_kafka_is_told_of_the_consumer_that_is_furthest_behind(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, [str(n) for n in range(50)])
    flow.admin.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    flow.begin(name, "t", group_id=name)
    flow.read(name)
    wait_committed(flow, name, name, {0: 50})
    flow.begin(name, "u", group_id=name, start_offset=20)
    flow.read(name)
    assert flow.value("SELECT count(*) FROM u") == 30
    assert flow.value("SELECT count(*) FROM t") == 50
    wait_committed(flow, name, name, {0: 50})


def wait_committed(flow: Flow, group: str, topic: str, offsets: dict[int, int]) -> None:
    wait_until(
        lambda: flow.kafka.committed(group, topic),
        f"group {group} has committed {offsets}",
        60,
        accept=lambda committed: committed == offsets,
    )

"""A part of a topic read once more, by a worker of its own, beside the consumers: which part, and what is refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from tests.fix_cluster import Connect
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.integration.replays import do, replay, status, wait_for
from tests.testbed.wait import wait_until

GROUP = "SELECT 'pipeline_kafka-' || system_identifier || '-' || current_database() FROM pg_control_system()"


@pytest.fixture
def numbers(flow: Flow, topic: MakeTopic) -> str:
    """A topic of three partitions: 0 to 99, 1000 to 1099, 2000 to 2099; and a table t for them."""
    name = topic(partitions=3)
    for partition in range(3):
        flow.kafka.produce(name, [str(partition * 1000 + n) for n in range(100)], partition=partition)
    flow.admin.execute("CREATE TABLE t (id int)")
    return name


def test_all_of_a_topic_once_and_no_group_knows(flow: Flow, numbers: str) -> None:
    done = wait_for(flow.admin, replay(flow.admin, numbers, "t"), "finished")
    assert flow.rows("SELECT count(*), count(DISTINCT id) FROM t") == [(300, 300)]
    assert (done["messages"], done["remaining"], done["partitions"]) == (300, 0, 3)
    assert done["rate"] > 0
    assert done["ended_at"] >= done["begun_at"]
    flow.wait_alone()
    assert flow.kafka.committed(flow.value(GROUP), numbers) == {}


def test_from_an_offset_up_to_another_in_some_partitions(flow: Flow, numbers: str) -> None:
    done = replay(flow.admin, numbers, "t", start_offset=10, end_offset=13, partitions=[0, 2])
    wait_for(flow.admin, done, "finished")
    assert flow.column("SELECT id FROM t") == [10, 11, 12, 2010, 2011, 2012]


def test_offsets_behind_the_end_are_the_end(flow: Flow, numbers: str) -> None:
    wait_for(flow.admin, replay(flow.admin, numbers, "t", start_offset=98, end_offset=500), "finished")
    assert flow.column("SELECT id FROM t") == [98, 99, 1098, 1099, 2098, 2099]
    empty = wait_for(flow.admin, replay(flow.admin, numbers, "t", start_offset=100), "finished")
    assert (empty["messages"], flow.value("SELECT count(*) FROM t")) == (0, 6)


def test_from_a_time_up_to_another(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    times = []
    for value in range(3):
        times.append(time.time_ns() // 1_000_000)
        flow.kafka.produce(name, [str(value)])
        wait_until(lambda: time.time_ns() // 1_000_000 > times[-1] + 1, "the next millisecond")
    sent = [message.timestamp()[1] for message in flow.kafka.messages(name)]
    at = [datetime.fromtimestamp(ms / 1000, UTC) for ms in sent]
    wait_for(flow.admin, replay(flow.admin, name, "t", start_timestamp=at[1], end_timestamp=at[2]), "finished")
    assert flow.column("SELECT id FROM t") == [1]
    wait_for(flow.admin, replay(flow.admin, name, "t", start_timestamp=at[2]), "finished")
    assert flow.column("SELECT id FROM t") == [1, 2]


def test_a_limit_of_messages_is_kept_to_the_message(flow: Flow, numbers: str) -> None:
    for batchsize in (7, 10_000):
        each = replay(flow.admin, numbers, "t", max_messages=150, batchsize=batchsize)
        done = wait_for(flow.admin, each, "finished")
        assert (done["messages"], done["remaining"]) == (150, 0)
        assert flow.rows("SELECT count(*), count(DISTINCT id) FROM t") == [(150, 150)]
        flow.admin.execute("TRUNCATE t")


def test_a_consumer_and_its_offsets_are_left_alone(flow: Flow, numbers: str) -> None:
    flow.begin(numbers, "t")
    flow.read(numbers)
    offsets = "SELECT * FROM pipeline_kafka.offsets WHERE consumer_id = 1 ORDER BY partition"
    before = flow.rows(offsets)
    wait_for(flow.admin, replay(flow.admin, numbers, "t", end_offset=50), "finished")
    assert flow.rows(offsets) == before
    assert flow.rows("SELECT topic, state, messages FROM pipeline_kafka.consumers_status") == [
        (numbers, "running", 300)
    ]
    assert flow.rows("SELECT count(*), count(DISTINCT id) FROM t") == [(450, 300)]
    flow.kafka.produce(numbers, ["7777"])
    flow.read(numbers, "t")
    flow.admin.execute("SELECT pipeline_kafka.consume_begin(), pipeline_kafka.consume_end()")
    assert flow.column("SELECT state FROM pipeline_kafka.replays_status") == ["finished"]


def test_what_is_left_out_is_as_the_consumer_has_it(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ['{"id": 1}'])
    flow.admin.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    flow.begin(name, "t", format="json")
    flow.read(name)
    wait_for(flow.admin, replay(flow.admin, name, "t"), "finished")
    assert flow.column("SELECT id FROM t") == [1, 1]
    wait_for(flow.admin, replay(flow.admin, name, "u"), "finished", lambda row: row["set_aside"] == 1)


def test_several_at_once(flow: Flow, numbers: str) -> None:
    with flow.admin.transaction():
        ids = [replay(flow.admin, numbers, "t", partitions=[partition]) for partition in range(3)]
    for each in ids:
        wait_for(flow.admin, each, "finished", lambda row: row["messages"] == 100)
    assert flow.rows("SELECT count(*), count(DISTINCT id) FROM t") == [(300, 300)]


def test_what_is_rolled_back_was_never_begun(flow: Flow, numbers: str) -> None:
    with flow.admin.transaction(force_rollback=True):
        replay(flow.admin, numbers, "t")
    wait_for(flow.admin, replay(flow.admin, numbers, "t", partitions=[0]), "finished")
    assert flow.value("SELECT count(*) FROM t") == 100
    assert flow.value("SELECT count(*) FROM pipeline_kafka.replays_status") == 1


def test_transactions_and_what_was_aborted(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    producer = flow.kafka.producer(transactional_id=name)
    producer.init_transactions()
    for value in range(4):
        producer.begin_transaction()
        producer.produce(name, str(value).encode())
        producer.flush()
        producer.commit_transaction() if value % 2 else producer.abort_transaction()
    producer.begin_transaction()
    producer.produce(name, b"5")
    producer.flush()  # and left open: what comes behind is not there yet
    done = wait_for(flow.admin, replay(flow.admin, name, "t"), "finished")
    producer.abort_transaction()
    assert flow.column("SELECT id FROM t") == [1, 3]
    assert (done["messages"], done["remaining"]) == (2, 0)


def test_bad_messages_are_dead_letters_of_the_replay(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1", "bad", "3"])
    flow.admin.execute("CREATE TABLE t (id int)")
    done = wait_for(flow.admin, replay(flow.admin, name, "t"), "finished")
    assert (done["messages"], done["set_aside"]) == (3, 1)
    assert flow.aside(name) == [(0, 1, "22P02")]
    flow.admin.execute("SELECT pipeline_kafka.fix_dead_letter(id, '2'::text) FROM pipeline_kafka.dead_letters")
    assert flow.rows("SELECT * FROM pipeline_kafka.retry_dead_letters()") == [(1, 1, 0)]
    assert flow.column("SELECT id FROM t") == [1, 2, 3]


def test_it_stops_at_a_bad_message_and_goes_on_with_it(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1", "-2", "3"])
    flow.admin.execute("CREATE TABLE t (id int CHECK (id > 0))")
    each = replay(flow.admin, name, "t", on_error="stop")
    stopped = wait_for(flow.admin, each, "stopped")
    assert (stopped["messages"], stopped["last_sqlstate"]) == (1, "23514")
    assert "call resume_replay(), which goes on at this message" in stopped["last_error"]
    flow.wait_alone()
    flow.admin.execute("ALTER TABLE t DROP CONSTRAINT t_id_check")
    do(flow.admin, "resume", each)
    wait_for(flow.admin, each, "finished")
    assert flow.column("SELECT id FROM t") == [-2, 1, 3]


def test_offsets_that_kafka_has_deleted_are_refused(flow: Flow, numbers: str) -> None:
    kafka = flow.kafka.admin()
    kafka.delete_records([TopicPartition(numbers, 1, 60)])[TopicPartition(numbers, 1)].result(30)
    with pytest.raises(
        psycopg.errors.NumericValueOutOfRange, match=r"\[1\] begins with offset 60, and 10 was asked for"
    ):
        replay(flow.admin, numbers, "t", start_offset=10)
    wait_for(flow.admin, replay(flow.admin, numbers, "t"), "finished", lambda row: row["messages"] == 240)


def test_offsets_that_kafka_deletes_meanwhile(flow: Flow, numbers: str) -> None:
    with flow.admin.transaction():
        stops = replay(flow.admin, numbers, "t", partitions=[1])
        passes = replay(flow.admin, numbers, "t", partitions=[1], on_offset_lost="earliest")
        for each in (stops, passes):
            do(flow.admin, "pause", each)
    kafka = flow.kafka.admin()
    kafka.delete_records([TopicPartition(numbers, 1, 60)])[TopicPartition(numbers, 1)].result(30)
    for each in (stops, passes):
        do(flow.admin, "resume", each)
    stopped, passed = wait_for(flow.admin, stops, "stopped"), wait_for(flow.admin, passes, "finished")
    assert "holds offsets 60 to 100, and 0 was to be read next" in stopped["last_error"]
    assert (stopped["messages"], stopped["remaining"]) == (0, 100)
    assert (passed["messages"], passed["lost"]) == (40, 60)
    assert flow.column("SELECT id FROM t") == list(range(1060, 1100))


REFUSED: list[tuple[dict[str, Any], type[psycopg.Error], str]] = [
    ({"topic": "^a"}, psycopg.errors.InvalidParameterValue, "is a pattern"),
    ({"topic": "no-such-topic"}, psycopg.errors.UndefinedObject, "no-such-topic"),
    ({"partitions": [0, 7]}, psycopg.errors.UndefinedObject, "no partition 7"),
    ({"max_messages": 0}, psycopg.errors.InvalidParameterValue, "max_messages is 0"),
    ({"start_offset": -3}, psycopg.errors.InvalidParameterValue, "start_offset is -3"),
    ({"end_offset": -2}, psycopg.errors.InvalidParameterValue, "end_offset is -2"),
    ({"format": "xml"}, psycopg.errors.InvalidParameterValue, "format is"),
    ({"relation": "pair", "format": "raw"}, psycopg.errors.DatatypeMismatch, "format raw needs"),
    ({"timeout": 0}, psycopg.errors.InvalidParameterValue, "timeout is 0"),
    ({"start_timestamp": "infinity"}, psycopg.errors.InvalidParameterValue, "no message has the timestamp"),
    ({"start_offset": 9, "end_offset": 8}, psycopg.errors.InvalidParameterValue, "ends before it starts"),
    (
        {"start_timestamp": "2026-01-02", "end_timestamp": "2026-01-01"},
        psycopg.errors.InvalidParameterValue,
        "ends before it starts",
    ),
    ({"end_offset": 1, "end_timestamp": "2026-01-01"}, psycopg.errors.InvalidParameterValue, "both an offset and"),
]


def test_what_makes_no_sense_is_refused(flow: Flow, numbers: str) -> None:
    flow.admin.execute("CREATE TABLE pair (a text, b text)")
    for settings, error, said in REFUSED:
        with pytest.raises(error, match=said):
            replay(flow.admin, **{"topic": numbers, "relation": "t", **settings})
    assert flow.rows("SELECT * FROM pipeline_kafka.replays") == []


def test_only_its_owner_has_a_say(flow: Flow, numbers: str, connect: Connect) -> None:
    for role in ("replayer", "stranger"):
        make = f"DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"
        flow.admin.execute(make.encode())
    replayer, stranger = connect(user="replayer"), connect(user="stranger")
    flow.admin.execute("GRANT INSERT ON t TO replayer")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        replay(replayer, numbers, "t")
    flow.admin.execute(
        "GRANT EXECUTE ON FUNCTION pipeline_kafka.replay, pipeline_kafka.cancel_replay TO replayer, stranger"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not insert into"):
        replay(stranger, numbers, "t")
    with flow.admin.transaction():
        each = replay(flow.admin, numbers, "t")
        do(flow.admin, "pause", each)
    with pytest.raises(psycopg.errors.UndefinedObject, match=f"no replay {each} of yours"):
        do(stranger, "cancel", each)
    own = replay(replayer, numbers, "t", start_offset=99)
    wait_for(flow.admin, own, "finished", lambda row: row["owner"] == "replayer")
    flow.admin.execute("REVOKE INSERT ON t FROM replayer")
    assert flow.column("SELECT id FROM t") == [99, 1099, 2099]
    do(flow.admin, "cancel", each)
    assert status(flow.admin, each)["state"] == "cancelled"

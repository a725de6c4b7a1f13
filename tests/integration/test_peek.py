"""peek(): messages of a topic in psql, without a table, a group or a trace; and where in it a time is."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_cluster import Connection
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.integration.test_gaps import in_a_transaction
from tests.integration.test_starts import delete_before
from tests.testbed.kafka import Kafka

PLACES = "SELECT partition, kafka_offset FROM pipeline_kafka.peek"
DAY_1, DAY_2, DAY_3 = 1_700_000_000_000, 1_700_086_400_000, 1_700_172_800_000


def rows(admin: Connection, query: str, *values: Any) -> list[Any]:
    return admin.execute(query.encode(), values).fetchall()


def groups(kafka: Kafka) -> set[str]:
    admin = kafka.admin()
    return {group.group_id for group in admin.list_consumer_groups().result().valid}


def test_from_an_offset_from_the_beginning_and_from_the_end(linked: Connection, kafka: Kafka, topic: MakeTopic) -> None:
    name = topic(2)
    kafka.produce(name, [f"v{n}" for n in range(6)], partition=0)
    kafka.produce(name, ["w0"], partition=1)
    assert rows(linked, f"{PLACES}(%s, 0, 2, 3)", name) == [(0, 2), (0, 3), (0, 4)]
    assert rows(linked, f"{PLACES}(%s, 0, -2, 2)", name) == [(0, 0), (0, 1)]
    assert rows(linked, f"{PLACES}(%s, n => 2)", name) == [(0, 4), (0, 5), (1, 0)]
    assert rows(linked, f"{PLACES}(%s, 0, 6)", name) == []
    before = groups(kafka)
    assert rows(linked, f"{PLACES}(%s, 0, 5, 100)", name) == [(0, 5)]
    assert groups(kafka) == before
    delete_before(Flow(linked, kafka), name, 3)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=rf"{name}\[0\] holds offsets 3 to 6, not 1"):
        rows(linked, f"{PLACES}(%s, 0, 1)", name)
    for wrong in ("n => 0", "n => 10001", "kafka_offset => -3"):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            rows(linked, f"{PLACES}(%s, {wrong})", name)
    with pytest.raises(psycopg.errors.UndefinedObject, match="no partition 9"):
        rows(linked, f"{PLACES}(%s, 9)", name)


def test_as_text_as_json_and_as_bytes(linked: Connection, kafka: Kafka, topic: MakeTopic) -> None:
    name = topic()
    sent: list[tuple[str | bytes | None, str | bytes | None]] = [("k", '{"a": 1}'), (b"\xff", b"\xff\x00"), ("k", None)]
    kafka.produce(name, sent, headers=[("h", b"x")])
    text = rows(linked, "SELECT key, value, bytes, headers FROM pipeline_kafka.peek(%s)", name)
    headers = [{"name": "h", "value": "x"}]
    assert text == [("k", '{"a": 1}', 8, headers), (None, None, 2, headers), ("k", None, None, headers)]
    assert rows(linked, "SELECT value FROM pipeline_kafka.peek_json(%s)", name) == [({"a": 1},), (None,), (None,)]
    raw = rows(linked, "SELECT key, value FROM pipeline_kafka.peek_bytes(%s)", name)
    assert raw == [(b"k", b'{"a": 1}'), (b"\xff", b"\xff\x00"), (b"k", None)]


def test_aborted_messages_are_passed_over_and_do_not_count(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["first", "second"])
    in_a_transaction(flow, name, ["no"] * 40, commit=False)
    in_a_transaction(flow, name, ["third"], commit=True)
    assert flow.rows("SELECT value FROM pipeline_kafka.peek(%s, n => 2)", name) == [("second",), ("third",)]
    assert flow.column("SELECT value FROM pipeline_kafka.peek(%s, 0, 1, 2)", name) == ["second", "third"]


def test_who_set_the_timestamp_is_told(flow: Flow, topic: MakeTopic) -> None:
    created, appended = topic(), topic(config={"message.timestamp.type": "LogAppendTime"}, suffix="-appended")
    flow.admin.execute("CREATE TABLE t (id int, kafka_timestamp timestamptz, kafka_timestamp_type text)")
    for name, kind in ((created, "create"), (appended, "append")):
        flow.kafka.produce(name, ["1", "bad"])
        assert flow.rows("SELECT DISTINCT timestamp_type FROM pipeline_kafka.peek(%s)", name) == [(kind,)]
        flow.begin(name, "t")
        flow.read(name)
        assert flow.rows("SELECT kafka_timestamp_type FROM t") == [(kind,)]
        flow.admin.execute("UPDATE pipeline_kafka.dead_letters SET value = '2'")
        flow.admin.execute("SELECT pipeline_kafka.retry_dead_letters()")
        assert flow.rows("SELECT id, kafka_timestamp_type FROM t ORDER BY id") == [(1, kind), (2, kind)]
        flow.admin.execute("TRUNCATE t")


def days(flow: Flow, topic: MakeTopic) -> str:
    """A topic with a message on each of three days in partition 0, old as they are, and none in partition 1."""
    name = topic(2, config={"retention.ms": "-1"})
    producer = flow.kafka.producer()
    for time in (DAY_1, DAY_2, DAY_3):
        producer.produce(name, "x", partition=0, timestamp=time)
    assert producer.flush(30) == 0
    return name


def test_times_have_offsets(flow: Flow, topic: MakeTopic) -> None:
    name = days(flow, topic)
    columns = "partition, kafka_offset, extract(epoch FROM kafka_timestamp) * 1000"
    query = f"SELECT {columns} FROM pipeline_kafka.offsets_for_times"
    second = "to_timestamp(%s / 1000.0)"
    assert flow.rows(f"{query}(%s, {second})", name, DAY_2) == [(0, 1, DAY_2), (1, None, None)]
    assert flow.rows(f"{query}(%s, {second})", name, DAY_2 + 1) == [(0, 2, DAY_3), (1, None, None)]
    assert flow.rows(f"{query}(%s, '1960-01-01')", name) == [(0, 0, DAY_1), (1, None, None)]
    for never in ("now()", "'infinity'"):
        assert flow.rows(f"{query}(%s, {never})", name) == [(0, None, None), (1, None, None)]
    assert flow.rows(f"{query}(%s, '-infinity')", name) == [(0, 0, DAY_1), (1, None, None)]


STARTS = {
    "start_timestamp => '2023-11-15 12:00+00'": [1, 2, 3],
    "start_timestamp => now()": [3],
    "start_timestamp => '1960-01-01'": [0, 1, 2, 3],
    "start_last_messages => 1": [2, 3],
    "start_last_messages => 99": [0, 1, 2, 3],
    "start_last_interval => now() - '2023-11-16 12:00+00'": [2, 3],
}


def test_a_consumer_starts_at_a_time_or_before_the_end(flow: Flow, topic: MakeTopic) -> None:
    name = days(flow, topic)
    for number, start in enumerate(STARTS):
        flow.admin.execute(f"CREATE TABLE t{number} (kafka_offset int, value text)".encode())
        flow.admin.execute(f"SELECT pipeline_kafka.consume_begin(%s, 't{number}', {start})".encode(), [name])
    for number in range(len(STARTS)):
        flow.wait_state(name, f"t{number}", "running")
    flow.kafka.produce(name, ["x"], partition=0)
    flow.read(name)
    for number, landed in enumerate(STARTS.values()):
        assert flow.column(f"SELECT kafka_offset FROM t{number}") == landed


def test_a_start_is_checked(admin: Connection, no_local_workers: None) -> None:
    admin.execute("CREATE TABLE t (value text)")
    for start in (
        "start_offset => 1, start_timestamp => now()",
        "start_last_messages => 1, start_last_interval => '1 day'",
        "start_last_messages => 0",
        "start_timestamp => 'infinity'",
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            admin.execute(f"SELECT pipeline_kafka.consume_begin('a', 't', {start})".encode())


def test_more_than_a_session_can_hold_is_refused(linked: Connection, kafka: Kafka, topic: MakeTopic) -> None:
    name = topic()
    kafka.produce(name, ["x" * 900_000] * 75)
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="more than 64,000,000 bytes"):
        rows(linked, "SELECT count(*) FROM pipeline_kafka.peek(%s, 0, -2, 100)", name)
    assert rows(linked, "SELECT count(*) FROM pipeline_kafka.peek(%s, 0, -2, 3)", name) == [(3,)]

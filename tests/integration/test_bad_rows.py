"""Bad messages are set aside, whole, and their neighbours get in."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow


@pytest.mark.parametrize("format", ["text", "csv", "json"])
def test_one_bad_message_in_ten_thousand_anywhere(flow: Flow, topic: MakeTopic, format: str) -> None:
    name = topic(3)
    bad = {0: 0, 1: 5000, 2: 9999}  # by partition
    form = '{{"id":"{}"}}' if format == "json" else "{}"
    for partition, place in bad.items():
        values = [form.format("x" if n == place else n) for n in range(10000)]
        flow.kafka.produce(name, values, partition=partition)
    flow.admin.execute("CREATE TABLE t (id int, kafka_partition int)")
    flow.begin(name, "t", format=format)
    flow.read(name)
    for partition, place in bad.items():
        landed = flow.column("SELECT id FROM t WHERE kafka_partition = %s", partition)
        assert landed == [n for n in range(10000) if n != place]
    assert flow.aside(name) == [(0, 0, "22P02"), (1, 5000, "22P02"), (2, 9999, "22P02")]
    status = flow.status(name, "t")
    assert (status["messages"], status["set_aside"], status["state"]) == (30000, 3, "running")


def test_what_is_set_aside_is_whole_and_says_why(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, [(b"k\xff", b"\x00bad\xff\tx")], headers=[("h", b"v"), ("none", None)])
    flow.admin.execute("CREATE TABLE t (id int, name text)")
    flow.begin(name, "t")
    flow.read(name)
    letter = flow.rows(
        """SELECT partition, kafka_offset, key, value, headers, error, now() - kafka_timestamp < interval '1 hour'
           FROM pipeline_kafka.dead_letters"""
    )
    headers = [{"name": "h", "value": "v"}, {"name": "none", "value": None}]
    assert [(*row[:5], row[6]) for row in letter] == [(0, 0, b"k\xff", b"\x00bad\xff\tx", headers, True)]
    assert "UTF8" in letter[0][5] or "UTF-8" in letter[0][5]


def test_the_error_names_the_column_and_the_value(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1\tok", "many\tok"])
    flow.admin.execute("CREATE TABLE t (id int, name text)")
    flow.begin(name, "t")
    flow.read(name)
    letters = flow.rows("SELECT error, column_name FROM pipeline_kafka.dead_letters")
    assert letters == [('invalid input syntax for type integer: "many"', "id")]


def test_skip_counts_what_it_passes_over(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1", "x", "2", "y"])
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t", on_error="skip")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]
    assert flow.aside(name) == []
    status = flow.status(name, "t")
    assert (status["messages"], status["skipped"], status["set_aside"]) == (4, 2, 0)


def test_stop_stops_at_the_bad_message(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1"])
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t", on_error="stop")
    flow.read(name)
    flow.kafka.produce(name, ["x", "3"])
    status = flow.wait_state(name, "t", "stopped")
    assert f"{name}[0] offset 1" in status["last_error"]
    assert status["last_sqlstate"] == "22P02"
    assert flow.column("SELECT id FROM t") == [1]
    flow.begin(name, "t", start_offset=2)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 3]


def test_a_storm_of_bad_messages_passes(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, [json.dumps({"id": n if n % 3 else "x"}) for n in range(600)])
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t", format="json")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [n for n in range(600) if n % 3]
    assert [offset for _, offset, _ in flow.aside(name)] == list(range(0, 600, 3))


def test_a_storm_of_messages_that_all_name_other_columns_passes(flow: Flow, topic: MakeTopic) -> None:
    """Each set of columns takes a statement of its own, and a connection keeps only so many prepared."""
    name = topic()
    columns = [f"c{place}" for place in range(8)]
    shapes = [[column for place, column in enumerate(columns) if number >> place & 1] for number in range(256)]
    messages = [{"id": n if n % 2 else "x", **dict.fromkeys(shape, 1)} for n, shape in enumerate(shapes)]
    flow.kafka.produce(name, list(map(json.dumps, messages)))
    flow.admin.execute(f"CREATE TABLE t (id int, {', '.join(f'{c} int DEFAULT 0' for c in columns)})".encode())
    flow.begin(name, "t", format="json")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == list(range(1, 256, 2))
    assert flow.value(f"SELECT sum({' + '.join(columns)}) FROM t") == sum(len(shapes[n]) for n in range(1, 256, 2))
    assert len(flow.aside(name)) == 128


def test_a_bad_message_of_one_relation_is_a_row_of_another(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1", "x"])
    flow.admin.execute("CREATE TABLE numbers (id int); CREATE TABLE words (word text)")
    flow.begin(name, "numbers")
    flow.begin(name, "words")
    flow.read(name)
    assert flow.column("SELECT id FROM numbers") == [1]
    assert flow.column("SELECT word FROM words") == ["1", "x"]
    assert flow.rows("SELECT c.relation::text FROM pipeline_kafka.dead_letters d JOIN pipeline_kafka.consumers c "
                     "ON c.id = d.consumer_id") == [("numbers",)]  # fmt: skip


def test_a_key_that_is_there_already_is_set_aside(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (2)")
    flow.kafka.produce(name, ["1", "2", "3"])
    flow.begin(name, "t")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2, 3]
    assert flow.aside(name) == [(0, 1, psycopg.errors.UniqueViolation.sqlstate)]

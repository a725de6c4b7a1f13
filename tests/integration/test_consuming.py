"""Topics flow into relations: formats, fan-out, workers that share, gaps in the offsets, new topics and partitions."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.fix_kafka import MakeTopic, unique_name
from tests.fix_worker import MakeWorker
from tests.integration.flow import Flow


def test_text_arrives(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1\tone", "2\t\\N", "3\ttab\\there"])
    flow.admin.execute("CREATE TABLE t (id int, name text)")
    flow.begin(name, "t")
    flow.read(name)
    assert flow.rows("SELECT * FROM t ORDER BY id") == [(1, "one"), (2, None), (3, "tab\there")]


def test_text_with_a_delimiter_of_ones_own(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1|one", "2|two\n3|three"])
    flow.admin.execute("CREATE TABLE t (id int, name text)")
    flow.begin(name, "t", format="text", delimiter="|")
    flow.read(name)
    assert flow.rows("SELECT * FROM t ORDER BY id") == [(1, "one"), (2, "two"), (3, "three")]


def test_csv_arrives(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1;'it\\'s; so'", "2;", "3;'two\nlines'"])
    flow.admin.execute("CREATE TABLE t (id int, name text)")
    flow.begin(name, "t", format="csv", delimiter=";", quote="'", escape="\\")
    flow.read(name)
    assert flow.rows("SELECT * FROM t ORDER BY id") == [(1, "it's; so"), (2, None), (3, "two\nlines")]


def test_json_arrives(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ['{"id":1,"tags":["a","b"],"extra":0}', '[{"id":2},{"id":3,"tags":null}]'])
    flow.admin.execute("CREATE TABLE t (id int, tags text[] DEFAULT '{none}')")
    flow.begin(name, "t", format="json")
    flow.read(name)
    assert flow.rows("SELECT * FROM t ORDER BY id") == [(1, ["a", "b"]), (2, ["none"]), (3, None)]


def test_a_json_document_arrives_whole_in_a_single_column(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ['{"id": 1, "deep": {"er": [1, 2]}}', "3"])
    flow.admin.execute("CREATE TABLE t (document jsonb)")
    flow.begin(name, "t", format="json")
    flow.read(name)
    assert flow.rows("SELECT document FROM t ORDER BY document::text DESC") == [
        ({"id": 1, "deep": {"er": [1, 2]}},),
        (3,),
    ]


def test_raw_bytes_arrive(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    values = [b"\x00\xff\\.\n", b"", bytes(range(256))]
    flow.kafka.produce(name, values)
    flow.admin.execute("CREATE TABLE t (content bytea)")
    flow.begin(name, "t", format="raw")
    flow.read(name)
    assert flow.column("SELECT content FROM t") == sorted(values)


@pytest.mark.parametrize("format", ["text", "csv", "json"])
def test_the_messages_own_marks_fill_the_kafka_columns(flow: Flow, topic: MakeTopic, format: str) -> None:
    name = topic(2)
    value = '{"v":7}' if format == "json" else "7"
    before = datetime.now(UTC)
    flow.kafka.produce(name, [(None, value)], partition=0)
    flow.kafka.produce(name, [("k\ty", value)], partition=1, headers=[("who", b"me\\"), ("who", b"\xff"), ("no", None)])
    flow.admin.execute(
        """CREATE TABLE t (kafka_headers jsonb, kafka_offset bigint, v int, kafka_topic text, kafka_partition int,
                           kafka_timestamp timestamptz, kafka_key text)"""
    )
    flow.begin(name, "t", format=format)
    flow.read(name)
    headers = [{"name": "who", "value": "me\\"}, {"name": "who", "base64": "/w=="}, {"name": "no", "value": None}]
    assert flow.rows(
        "SELECT v, kafka_topic, kafka_partition, kafka_offset, kafka_key, kafka_headers FROM t ORDER BY 3"
    ) == [
        (7, name, 0, 0, None, None),
        (7, name, 1, 0, "k\ty", headers),
    ]
    ages = flow.column("SELECT extract(epoch FROM kafka_timestamp - %s)::float FROM t", before)
    assert all(-0.002 < age < 60 for age in ages)  # Kafka keeps milliseconds


def test_a_topic_flows_into_three_relations_each_with_its_own_format_and_place(flow: Flow, topic: MakeTopic) -> None:
    name = topic(3)
    flow.kafka.produce(name, [json.dumps({"id": n}) for n in range(300)])
    for table, columns in {"a": "id int", "b": "document jsonb", "c": "content bytea"}.items():
        flow.admin.execute(f"CREATE TABLE {table} ({columns})")
    flow.begin(name, "a", format="json")
    flow.read(name, "a")
    flow.begin(name, "b", format="json")
    flow.begin(name, "c", format="raw")
    flow.kafka.produce(name, [json.dumps({"id": n}) for n in range(300, 400)])
    flow.read(name)
    everything = list(range(400))
    assert flow.column("SELECT id FROM a") == everything
    assert flow.column("SELECT (document->>'id')::int FROM b") == everything
    assert flow.column("SELECT (convert_from(content, 'utf8')::json->>'id')::int FROM c") == everything


def test_two_workers_share_the_partitions_and_lose_or_double_nothing(flow: Flow, topic: MakeTopic) -> None:
    name = topic(4)
    produce_spread(flow, name, 0, 2000, partitions=4)
    flow.admin.execute("CREATE TABLE t (id int, by text DEFAULT pg_backend_pid())")
    flow.begin(name, "t", format="json", parallelism=2)
    shares = "SELECT array_agg(partitions ORDER BY slot) FROM pipeline_kafka.workers_status WHERE state = 'running'"
    flow.wait(shares, [2, 2], "each worker has two partitions")
    produce_spread(flow, name, 2000, 4000, partitions=4)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == list(range(4000))
    assert flow.value("SELECT count(DISTINCT by) FROM t WHERE id >= 2000") == 2


def produce_spread(flow: Flow, topic: str, start: int, stop: int, partitions: int) -> None:
    """Objects whose ids are numbers from start to stop, the same share in each partition."""
    for partition in range(partitions):
        ids = range(start + partition, stop, partitions)
        flow.kafka.produce(topic, [json.dumps({"id": n}) for n in ids], partition=partition)


def test_end_stops_and_begin_goes_on_where_it_stood(flow: Flow, topic: MakeTopic) -> None:
    name, other = topic(2), topic()
    flow.admin.execute("CREATE TABLE t (id int); CREATE TABLE other (id int)")
    flow.begin(name, "t")
    flow.begin(other, "other")
    for partition in range(2):
        flow.kafka.produce(name, [str(n) for n in range(partition, 100, 2)], partition=partition)
    flow.read(name)
    flow.end(name, "t")
    for partition in range(2):
        flow.kafka.produce(name, [str(n) for n in range(100 + partition, 200, 2)], partition=partition)
    flow.kafka.produce(other, ["1"])
    flow.read(other)  # by the same worker, which would have read the other topic too
    assert flow.value("SELECT count(*) FROM t") == 100
    assert flow.status(name, "t")["state"] == "ended"
    flow.begin(name, "t", start_offset=None)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == list(range(200))


def test_all_consumers_end_and_go_on_at_once(flow: Flow, topic: MakeTopic) -> None:
    names = [topic(), topic()]
    for table, name in zip("ab", names, strict=True):
        flow.kafka.produce(name, ["1"])
        flow.admin.execute(f"CREATE TABLE {table} (id int)")
        flow.begin(name, table)
        flow.read(name)
    flow.admin.execute("SELECT pipeline_kafka.consume_end()")
    assert flow.column("SELECT state FROM pipeline_kafka.consumers_status") == ["ended", "ended"]
    for name in names:
        flow.kafka.produce(name, ["2"])
    flow.admin.execute("SELECT pipeline_kafka.consume_begin()")
    for table, name in zip("ab", names, strict=True):
        flow.read(name)
        assert flow.column(f"SELECT id FROM {table}") == [1, 2]


def test_partitions_that_are_added_are_read_from_their_beginning(flow: Flow, topic: MakeTopic) -> None:
    name = topic(1)
    flow.kafka.produce(name, ["0"])
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t", start_offset=-1)
    flow.wait_state(name, "t", "running")
    flow.kafka.add_partitions(name, 3)
    for partition in range(3):
        flow.kafka.produce(name, [str(partition + 1)], partition=partition)
    flow.look_often()  # not before: the partitions are to be seen with messages in them
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2, 3]


def test_partitions_that_are_added_while_the_worker_is_away_are_read(
    flow: Flow, topic: MakeTopic, no_local_workers: None, external_worker: MakeWorker
) -> None:
    name = topic(1)
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    worker = external_worker(slot=100)
    flow.wait_state(name, "t", "running")
    worker.kill9()
    flow.kafka.add_partitions(name, 3)
    for partition in range(3):
        flow.kafka.produce(name, [str(partition)], partition=partition)
    external_worker(slot=100)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [0, 1, 2]


def test_a_topic_that_does_not_exist_is_waited_for(flow: Flow, request: pytest.FixtureRequest) -> None:
    name = unique_name(request)
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t", start_offset=None)
    flow.wait_state(name, "t", "waiting for topic")
    flow.kafka.create_topic(name, 2)
    for partition in range(2):
        flow.kafka.produce(name, [str(n) for n in range(partition, 10, 2)], partition=partition)
    flow.look_often()
    flow.read(name)
    assert flow.column("SELECT id FROM t") == list(range(10))
    assert flow.status(name, "t")["state"] == "running"


def test_a_pattern_reads_the_topics_that_match_and_those_to_come(flow: Flow, topic: MakeTopic) -> None:
    first, stranger = topic(suffix=".orders"), topic(suffix=".returns")
    base = first.rpartition("-")[0]
    flow.kafka.produce(first, ["1"])
    flow.kafka.produce(stranger, ["2"])
    flow.admin.execute("CREATE TABLE t (id int, kafka_topic text)")
    flow.begin(f"^{base}.*\\.orders$", "t")
    flow.read(first)
    second = flow.kafka.create_topic(f"{base}-late.orders")
    flow.kafka.produce(second, ["3"])
    flow.look_often()
    flow.read(second)
    assert flow.rows("SELECT id, kafka_topic FROM t ORDER BY id") == [(1, first), (3, second)]


def test_empty_topics_are_polled_in_peace(flow: Flow, topic: MakeTopic) -> None:
    name = topic(8)
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.wait_state(name, "t", "running")
    polled = "SELECT last_poll > %s FROM pipeline_kafka.workers_status"
    flow.wait(polled, True, "the worker polls on", flow.value("SELECT clock_timestamp()"))
    flow.kafka.produce(name, ["1"], partition=7)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1]
    assert flow.status(name, "t")["last_error"] is None

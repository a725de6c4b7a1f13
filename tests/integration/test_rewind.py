"""What a consumer has loaded, undone from an offset on and read again."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_cluster import Connect
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.integration.replays import replay, wait_for

Rows = list[tuple[Any, ...]]
PLACES = "CREATE TABLE t (id int, kafka_partition int, kafka_offset bigint)"
COUNTS = "SELECT count(*), count(DISTINCT (kafka_partition, kafka_offset)) FROM t"


@pytest.fixture
def loaded(flow: Flow, topic: MakeTopic) -> str:
    """A topic of two partitions with 100 messages each, one of them bad, all of them read into t."""
    name = topic(partitions=2)
    for partition in range(2):
        values = [str(partition * 1000 + n) for n in range(100)]
        values[70] = "bad"
        flow.kafka.produce(name, values, partition=partition)
    flow.admin.execute(PLACES)
    flow.begin(name, "t", format="text")
    flow.read(name)
    return name


def rewind(flow: Flow, name: str, arguments: str) -> Rows:
    """rewind(); returns (partition, from, to, removed) of each partition."""
    query = f"SELECT partition, from_offset, to_offset, removed FROM pipeline_kafka.rewind('{name}', 't', {arguments})"
    return flow.rows(query)


def test_rows_from_an_offset_on_are_removed_and_read_again(flow: Flow, loaded: str) -> None:
    before = flow.rows("SELECT * FROM t ORDER BY id")
    assert rewind(flow, loaded, "60") == [(0, 100, 60, 39), (1, 100, 60, 39)]
    flow.read(loaded)
    assert flow.rows("SELECT * FROM t ORDER BY id") == before
    assert flow.aside(loaded) == [(0, 70, "22P02"), (1, 70, "22P02")]
    assert flow.rows("SELECT outcome, count FROM pipeline_kafka.dead_letter_outcomes") == [("discarded", 2)]


def test_one_partition_while_it_is_ended(flow: Flow, loaded: str) -> None:
    flow.end(loaded, "t")
    flow.wait_alone()
    assert rewind(flow, loaded, "90, partition => 1") == [(1, 100, 90, 10)]
    assert flow.rows("SELECT max(kafka_offset) FROM t GROUP BY kafka_partition ORDER BY kafka_partition") == [
        (99,),
        (89,),
    ]
    assert rewind(flow, loaded, "95") == [(0, 100, 95, 5), (1, 90, 90, 0)]  # which never goes ahead
    flow.admin.execute("SELECT pipeline_kafka.consume_begin()")
    flow.read(loaded)
    assert flow.rows(COUNTS) == [(198, 198)]


def test_it_is_one_with_its_transaction(flow: Flow, loaded: str) -> None:
    with flow.admin.transaction(force_rollback=True):
        assert rewind(flow, loaded, "-2") == [(0, 100, 0, 99), (1, 100, 0, 99)]
        assert flow.rows(COUNTS) == [(0, 0)]
    assert flow.rows(COUNTS) == [(198, 198)]
    assert len(flow.aside(loaded)) == 2
    flow.kafka.produce(loaded, ["5000"], partition=0)
    flow.read(loaded)
    assert flow.rows(COUNTS) == [(199, 199)]


def test_while_batches_are_being_loaded(flow: Flow, topic: MakeTopic) -> None:
    name = topic(partitions=2)
    flow.admin.execute(PLACES)
    flow.begin(name, "t", batchsize=50)
    for partition in range(2):
        flow.kafka.produce(name, map(str, range(5_000)), partition=partition)
    for least in (200, 2_000, 4_000):
        flow.wait("SELECT count(*) > %s FROM t", True, f"{least} rows are there", least)
        assert sum(row[3] for row in rewind(flow, name, "100")) > 0
    flow.read(name)
    assert flow.rows(COUNTS) == [(10_000, 10_000)]


def test_from_a_time_on(flow: Flow, loaded: str) -> None:
    ((_, sent),) = {message.timestamp() for message in flow.kafka.messages(loaded)[-1:]}
    at = f"to_timestamp => to_timestamp({sent} / 1000.0)"
    moved = rewind(flow, loaded, at)
    assert all(start == 100 and 0 <= to <= 100 for _, start, to, _ in moved)
    assert moved[1][2] < 100
    flow.read(loaded)
    assert flow.rows(COUNTS) == [(198, 198)]


def test_topics_of_a_pattern_are_told_apart(flow: Flow, topic: MakeTopic) -> None:
    first = topic(suffix="-a")
    second = first.removesuffix("-a") + "-b"
    flow.kafka.create_topic(second)
    for name in (first, second):
        flow.kafka.produce(name, ["1", "2", "3"])
    flow.admin.execute("CREATE TABLE t (id int, kafka_topic text, kafka_partition text, kafka_offset text)")
    pattern = "^" + first.removesuffix("-a")
    flow.begin(pattern, "t")
    flow.read(first)
    flow.read(second)
    query = "SELECT topic, to_offset, removed FROM pipeline_kafka.rewind(%s, 't', 2)"
    assert flow.rows(query, pattern) == [(first, 2, 1), (second, 2, 1)]
    flow.read(first)
    flow.read(second)
    assert flow.rows("SELECT count(*), count(DISTINCT (kafka_topic, kafka_offset)) FROM t") == [(6, 6)]


REASONS = [
    ("ALTER TABLE t DROP kafka_offset", psycopg.errors.UndefinedColumn, "do not tell which offset"),
    (
        "UPDATE t SET kafka_offset = NULL WHERE id = 1",
        psycopg.errors.ObjectNotInPrerequisiteState,
        "may be from anywhere",
    ),
    (
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;"
        "CREATE TRIGGER mine BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
        psycopg.errors.ObjectNotInPrerequisiteState,
        "pass trigger mine",
    ),
    ("UPDATE pipeline_kafka.consumers SET on_conflict = 'update'", psycopg.errors.FeatureNotSupported, "changes rows"),
    (
        "UPDATE pipeline_kafka.offsets SET topic_id = 'another'",
        psycopg.errors.ObjectNotInPrerequisiteState,
        "was deleted and made again",
    ),
]


def test_it_is_refused_with_the_reason_where_it_would_not_be_exact(flow: Flow, loaded: str) -> None:
    flow.end(loaded, "t")
    for change, error, reason in REASONS:
        with flow.admin.transaction(force_rollback=True):
            flow.admin.execute(change.encode())
            with pytest.raises(error, match=reason), flow.admin.transaction():
                rewind(flow, loaded, "60")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="offset 101 is not there"):
        rewind(flow, loaded, "101")
    with flow.admin.transaction(force_rollback=True):
        flow.admin.execute(f"{REASONS[1][0]}; {REASONS[2][0]}".encode())
        assert rewind(flow, loaded, "60, force => true")[0] == (0, 100, 60, 39)
    wait_for(flow.admin, replay(flow.admin, loaded, "t", start_offset=80), "finished")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"replay 2 of .* cannot be told from"):
        rewind(flow, loaded, "60")
    assert flow.value("SELECT count(*) FROM t") == 238


def test_it_is_refused_where_a_trigger_keeps_rows(flow: Flow, loaded: str) -> None:
    flow.admin.execute(
        """CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
           CREATE TRIGGER soft BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep()"""
    )
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="rows of t were kept"):
        rewind(flow, loaded, "60")
    assert flow.rows(COUNTS) == [(198, 198)]


def test_triggers_of_partitions_are_seen(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute(
        f"""{PLACES} PARTITION BY RANGE (id);
            CREATE TABLE leaf PARTITION OF t DEFAULT; CREATE TABLE seen (id int);
            CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO public.seen VALUES (NEW.id); RETURN NEW; END';
            CREATE TRIGGER noting AFTER INSERT ON leaf FOR EACH ROW EXECUTE FUNCTION note()""".encode()
    )
    flow.kafka.produce(name, ["1", "2"])
    flow.begin(name, "t", format="text")
    flow.read(name)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="pass trigger noting"):
        rewind(flow, name, "0")


def test_only_the_owner_may_and_needs_to_delete(flow: Flow, loaded: str, connect: Connect) -> None:
    flow.admin.execute("DO $$ BEGIN CREATE ROLE rewinder LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    flow.admin.execute(
        """GRANT SELECT, INSERT ON t TO rewinder;
           GRANT EXECUTE ON FUNCTION pipeline_kafka.rewind, pipeline_kafka.rewind_rows, pipeline_kafka.kafka_column
               TO rewinder"""
    )
    rewinder = connect(user="rewinder")
    query = "SELECT removed FROM pipeline_kafka.rewind(%s, 't', 60, partition => 0)"
    with pytest.raises(psycopg.errors.UndefinedObject, match=r"no consumer .* of yours"):
        rewinder.execute(query, [loaded])
    flow.admin.execute("UPDATE pipeline_kafka.consumers SET owner = 'rewinder'")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table t"):
        rewinder.execute(query, [loaded])
    flow.admin.execute("GRANT DELETE ON t TO rewinder")
    assert rewinder.execute(query, [loaded]).fetchall() == [(39,)]
    flow.read(loaded)
    assert flow.rows(COUNTS) == [(198, 198)]

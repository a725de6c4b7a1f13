"""replay_here(): a part of a topic in the caller's own transaction, to keep or to roll back."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition

from tests.fix_cluster import Connect, Connection
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.integration.replays import call, do, status, wait_for
from tests.integration.test_asking import children
from tests.testbed.wait import wait_until

COUNTS = ("messages", "loaded", "set_aside", "skipped", "nulls")


@pytest.fixture
def mixed(flow: Flow, topic: MakeTopic) -> str:
    """A topic of two partitions, with bad messages and one without a value, and a table t for it."""
    name = topic(partitions=2)
    flow.kafka.produce(name, ['{"id": 1}', '{"id": "x\\u0000"}', '{"id": -3}', '{"id": 4}'], partition=0)
    flow.kafka.produce(name, ['{"id": 5}', None, "nothing", '{"id": 7}'], partition=1, headers=[("h", b"\xff\x00")])
    flow.admin.execute("CREATE TABLE t (id int CHECK (id > 0), kafka_partition int, kafka_offset bigint)")
    return name


def here(connection: Connection, topic: str, **settings: object) -> tuple[int, ...]:
    """replay_here() of JSON into t; returns its counts."""
    row = call(connection, "replay_here", topic, "t", format="json", **settings)
    return tuple(row[name] for name in COUNTS)


def test_it_returns_counts_and_rolls_back_with_the_transaction(flow: Flow, mixed: str) -> None:
    with flow.admin.transaction(force_rollback=True):
        assert here(flow.admin, mixed) == (8, 4, 3, 0, 1)
        assert flow.column("SELECT id FROM t") == [1, 4, 5, 7]
        assert flow.aside(mixed) == [(0, 1, "22P05"), (0, 2, "23514"), (1, 2, "22P02")]
    for table in ("t", "pipeline_kafka.replays", "pipeline_kafka.dead_letters", "pipeline_kafka.consumers"):
        assert flow.rows(f"SELECT * FROM {table}") == []


def test_what_is_committed_is_what_a_worker_would_have_written(flow: Flow, mixed: str) -> None:
    each = call(flow.admin, "replay_here", mixed, "t", format="json")["replay"]
    assert flow.rows("SELECT * FROM t ORDER BY id") == [(1, 0, 0), (4, 0, 3), (5, 1, 0), (7, 1, 3)]
    row = status(flow.admin, each)
    assert [row[name] for name in ("state", "messages", "set_aside", "nulls", "remaining")] == ["finished", 8, 3, 1, 0]
    letter = "SELECT value, headers, column_name FROM pipeline_kafka.dead_letters WHERE partition = 1"
    assert flow.rows(letter) == [(b"nothing", [{"name": "h", "base64": "/wA="}], None)]
    assert flow.value("SELECT column_name FROM pipeline_kafka.dead_letters WHERE sqlstate = '23514'") == "id"
    flow.admin.execute("ALTER TABLE t DROP CONSTRAINT t_id_check")
    assert flow.rows("SELECT * FROM pipeline_kafka.retry_dead_letters(sqlstate => '23')") == [(1, 1, 0)]
    assert flow.value("SELECT count(*) FROM t WHERE id = -3 AND kafka_offset = 2") == 1


def test_bad_messages_are_counted_or_stop_it(flow: Flow, mixed: str) -> None:
    assert here(flow.admin, mixed, on_error="skip") == (8, 4, 0, 3, 1)
    with pytest.raises(psycopg.errors.UntranslatableCharacter, match=r"\[0\] offset 1: "):
        here(flow.admin, mixed, on_error="stop")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match=r"\[\d\] offset \d: "):
        here(flow.admin, mixed, max_dead_letters=2)
    assert here(flow.admin, mixed, max_dead_letters=3) == (8, 4, 3, 0, 1)
    assert flow.value("SELECT count(*) FROM t") == 8


def test_a_range_and_a_limit(flow: Flow, topic: MakeTopic) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        flow.kafka.produce(name, [f'{{"id": {partition + 1}{n:05}}}' for n in range(5_100)], partition=partition)
    flow.admin.execute("CREATE TABLE t (id int)")
    assert here(flow.admin, name) == (15_300, 15_300, 0, 0, 0)
    assert flow.rows("SELECT count(*), count(DISTINCT id) FROM t") == [(15_300, 15_300)]
    flow.admin.execute("TRUNCATE t")
    assert here(flow.admin, name, start_offset=10, end_offset=13, partitions=[0, 2])[0] == 6
    assert flow.column("SELECT id FROM t") == [100010, 100011, 100012, 300010, 300011, 300012]
    flow.admin.execute("TRUNCATE t")
    assert here(flow.admin, name, max_messages=5_001)[0] == 5_001
    assert flow.rows("SELECT count(*), count(DISTINCT id) FROM t") == [(5_001, 5_001)]
    assert here(flow.admin, name, start_offset=5_100)[0] == 0


def test_the_other_formats(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1", "bad", "2"])
    flow.admin.execute("CREATE TABLE t (id int); CREATE TABLE u (id text)")
    for format, relation, loaded in (("text", "t", 2), ("csv", "t", 2), ("raw", "u", 3)):
        row = call(flow.admin, "replay_here", name, relation, format=format)
        assert (row["loaded"], row["set_aside"]) == (loaded, 3 - loaded), format
    assert flow.column("SELECT id FROM t") == [1, 1, 2, 2]
    assert flow.column("SELECT id FROM u") == ["1", "2", "bad"]


ODD: dict[str, list[bytes | str | None]] = {
    "json": [
        '{"id":1,"name":"a\\tb\\nc\\\\d\\"e"}', '{"id":1,"name":"x\\u0000y"}', '{"id":123456789012345678901234567890}',
        '{"id":1.0}', '{"id":1e2}', '{"id":1,"id":2}', '{"name":null}', "{}", "[]", '[{"id":3},{"id":4}]', "3", '"x"',
        '{"id":1', "", b"\xff\xfe", '{"name":"\\ud800"}', '{"at":"yesterday-ish"}', '{"at":"2026-01-01 00:00:00+00"}',
        None,
    ],
    "text": [
        "1\ta\t2026-01-01", "1\t\\N\t\\N", "\\.", "1\ta\t\\N\n", "1", "1\ta\tb\tc", "x\ta\t\\N", "1\ta\\\t\\N",
        "", "1\ta\t\\N\n2\tb\t\\N",
        b"1\t\xff\t\\N", None,
    ],
    "csv": ['1\t"a""b"\t', '1\t"a', "1\ta", '1\t"a\nb"\t2026-01-01', "x\ty\tz", "", "1\t\\.\t", None],
}  # fmt: skip


@pytest.mark.parametrize("format", ODD)
def test_it_takes_and_refuses_what_a_worker_does(flow: Flow, topic: MakeTopic, format: str) -> None:
    name = topic()
    flow.kafka.produce(name, ODD[format])
    columns = "(id bigint, name text DEFAULT 'none', at timestamptz, kafka_offset bigint)"
    flow.admin.execute(f"CREATE TABLE t {columns}; CREATE TABLE u {columns}".encode())
    each = call(flow.admin, "replay", name, "u", format=format)["replay"]
    done = wait_for(flow.admin, each, "finished")
    counts = call(flow.admin, "replay_here", name, "t", format=format)
    rows = "SELECT * FROM {} ORDER BY kafka_offset, id"
    assert flow.rows(rows.format("t")) == flow.rows(rows.format("u"))
    letters = (
        "SELECT kafka_offset, sqlstate, error, value FROM pipeline_kafka.dead_letters WHERE consumer_id = %s ORDER BY 1"
    )
    assert flow.rows(letters, counts["replay"]) == flow.rows(letters, each)
    assert [counts[name] for name in ("messages", "set_aside", "nulls")] == [
        done[n] for n in ("messages", "set_aside", "nulls")
    ]
    assert counts["set_aside"] >= 3


def test_a_cancel_is_answered_and_leaves_no_process(flow: Flow, mixed: str, connect: Connect) -> None:
    flow.admin.execute(
        """CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               PERFORM pg_advisory_xact_lock_shared(50);
               RETURN NEW;
           END $$;
           CREATE TRIGGER hold BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION hold();
           SELECT pg_advisory_lock(50)"""
    )
    caller = connect()
    errors: list[psycopg.Error] = []

    def ask() -> None:
        try:
            here(caller, mixed)
        except psycopg.Error as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 50 AND NOT granted"
    wait_until(lambda: flow.rows(waiting), "it waits for the lock")
    caller.cancel_safe()
    thread.join()
    assert [type(error) for error in errors] == [psycopg.errors.QueryCanceled]
    wait_until(lambda: children(caller.info.backend_pid) == [], "its process is gone")
    assert flow.rows("SELECT * FROM pipeline_kafka.replays") == []
    assert caller.execute("SELECT 1").fetchone() == (1,)


def test_it_runs_as_the_caller_with_no_more_than_its_rights(flow: Flow, mixed: str, connect: Connect) -> None:
    flow.admin.execute("DO $$ BEGIN CREATE ROLE replayer_here LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    flow.admin.execute(
        """GRANT INSERT ON t TO replayer_here;
           GRANT EXECUTE ON FUNCTION pipeline_kafka.replay_here, pipeline_kafka.load_replay, pipeline_kafka.read_replay,
               pipeline_kafka.load_api, pipeline_kafka.setting, pipeline_kafka.relation_version,
               pipeline_kafka.unique_keys, pipeline_kafka.execute_as TO replayer_here;
           GRANT SELECT ON pipeline_kafka.consumers, pipeline_kafka.error_rules TO replayer_here;
           ALTER TABLE t ADD who text DEFAULT current_user"""
    )
    caller = connect(user="replayer_here")
    assert here(caller, mixed) == (8, 4, 3, 0, 1)
    assert flow.rows("SELECT DISTINCT who FROM t") == [("replayer_here",)]
    assert flow.column("SELECT owner::text FROM pipeline_kafka.replays_status") == ["replayer_here"]
    flow.admin.execute("CREATE TABLE u (id int)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not insert into"):
        call(caller, "replay_here", mixed, "u", format="json")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        caller.execute("SELECT * FROM pipeline_kafka.dead_letters")


def test_what_is_not_a_messages_fault_is_an_error(flow: Flow, mixed: str) -> None:
    flow.admin.execute(
        """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               PERFORM no_such_function();
               RETURN NEW;
           END $$;
           CREATE TRIGGER fail BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fail()"""
    )
    with pytest.raises(psycopg.errors.UndefinedFunction, match=r"^function no_such_function"):
        here(flow.admin, mixed)
    wait_until(lambda: children(flow.admin.info.backend_pid) == [], "its process is gone")
    flow.admin.execute("CREATE TABLE v (kafka_offset int)")
    with pytest.raises(psycopg.errors.DatatypeMismatch):
        call(flow.admin, "replay_here", mixed, "v", format="json")


def test_trouble_with_kafka_on_the_way_is_told_as_it_is(flow: Flow, mixed: str) -> None:
    with flow.admin.transaction():
        each = call(flow.admin, "replay", mixed, "t", format="json", partitions=[0])["replay"]
        do(flow.admin, "pause", each)
    kafka = flow.kafka.admin()
    kafka.delete_records([TopicPartition(mixed, 0, 2)])[TopicPartition(mixed, 0)].result(30)
    with pytest.raises(psycopg.errors.NumericValueOutOfRange, match=r"\[0\] does not have offset 0 any more"):
        flow.admin.execute("SELECT pipeline_kafka.load_replay(%s, 10000)", [each])
    wait_until(lambda: children(flow.admin.info.backend_pid) == [], "its process is gone")


def test_it_tells_how_far_it_is(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ['{"id": 1}'] * 12_000)
    flow.admin.execute(
        """CREATE TABLE t (id int);
           CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               PERFORM pg_sleep(3);
               RETURN NULL;
           END $$;
           CREATE TRIGGER slow AFTER INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION slow()"""
    )
    said: list[str] = []
    flow.admin.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    assert here(flow.admin, name)[0] == 12_000
    assert any(" messages were read, " in line and line.endswith(" offsets are left") for line in said)
    assert not Path(f"/proc/{flow.admin.info.backend_pid}/task/{flow.admin.info.backend_pid}/children").read_text()

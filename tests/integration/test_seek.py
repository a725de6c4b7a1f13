"""seek(): a consumer is sent to another place, running or not, in the caller's transaction."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from tests.fix_cluster import Connect
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow, Rows
from tests.integration.test_gaps import in_a_transaction
from tests.integration.test_starts import delete_before, landed, make_again, places, produce_each, read_and_end

SEEK = "SELECT partition, from_offset, to_offset FROM pipeline_kafka.seek"


def begun(flow: Flow, topic: MakeTopic, count: int, partitions: int = 1, **settings: Any) -> str:
    """A topic with so many messages in each partition, that a running consumer has read into table t."""
    name = topic(partitions)
    places(flow)
    produce_each(flow, name, count, partitions)
    flow.begin(name, "t", **settings)
    flow.read(name, "t")
    return name


def seek(flow: Flow, topic: str, arguments: str, relation: str = "t") -> Rows:
    return flow.rows(f"{SEEK}(%s, %s, {arguments})", topic, relation)


def test_a_running_consumer_is_sent_back_at_once(flow: Flow, topic: MakeTopic) -> None:
    name = begun(flow, topic, 4, partitions=2)
    assert seek(flow, name, "-2, partition => 1") == [(1, 4, 0)]
    flow.wait("SELECT count(*) FROM t", 12, "partition 1 is read again, though no message has come")
    assert landed(flow) == [(0, 0), (0, 1), (0, 2), (0, 3)] + [(1, n) for n in range(4) for _ in range(2)]
    assert flow.status(name, "t")["messages"] == 12
    assert seek(flow, name, "2") == [(0, 4, 2), (1, 4, 2)]
    flow.wait("SELECT count(*) FROM t", 16, "the last two of each are read again")
    flow.wait("SELECT lag FROM pipeline_kafka.consumers_status", 0, "no lag is left")
    status = flow.status(name, "t")
    assert (status["state"], status["failures"], status["lost"]) == ("running", None, 0)
    assert flow.value("SELECT last_error FROM pipeline_kafka.workers_status") is None


def test_one_that_has_ended_goes_on_from_there(flow: Flow, topic: MakeTopic) -> None:
    name = read_and_end(flow, topic, 5)
    assert seek(flow, name, "3") == [(0, 5, 3)]
    assert flow.value("SELECT next_offset FROM pipeline_kafka.offsets") == 3
    flow.begin(name, "t", start_offset=None)
    flow.read(name)
    assert landed(flow) == [(0, n) for n in (0, 1, 2, 3, 3, 4, 4)]


def test_what_is_rolled_back_has_not_moved_and_what_commits_moves_with_the_rows(
    flow: Flow, topic: MakeTopic, connect: Connect
) -> None:
    name = begun(flow, topic, 3)
    caller = connect(autocommit=False)
    assert caller.execute(f"{SEEK}(%s, 't', -2)", [name]).fetchall() == [(0, 3, 0)]
    caller.execute("DELETE FROM t")
    produce_each(flow, name, 1)
    assert flow.value("SELECT next_offset FROM pipeline_kafka.offsets") == 3
    caller.rollback()
    flow.read(name)
    assert landed(flow) == [(0, n) for n in range(4)]
    caller.execute(f"{SEEK}(%s, 't', -2)", [name])
    caller.execute("DELETE FROM t")
    caller.commit()
    flow.read(name)
    assert landed(flow) == [(0, n) for n in range(4)]
    assert flow.rows("SELECT partition, from_offset, to_offset, by::text FROM pipeline_kafka.seeks") == [
        (0, 4, 0, flow.admin.info.user)
    ]


def test_under_load_every_message_from_there_on_is_read_just_once(flow: Flow, topic: MakeTopic) -> None:
    name = begun(flow, topic, 20_000, partitions=2, batchsize=500)
    flow.admin.execute("TRUNCATE t")
    for turn in range(5):
        with flow.admin.transaction():
            moved = seek(flow, name, f"{turn * 1000}")
            flow.admin.execute("DELETE FROM t WHERE kafka_offset >= %s", [turn * 1000])
        assert [to for _, _, to in moved] == [turn * 1000] * 2
    flow.read(name, "t")
    query = (
        "SELECT kafka_partition, count(*), count(DISTINCT kafka_offset), max(kafka_offset) FROM t GROUP BY 1 ORDER BY 1"
    )
    shown = flow.rows(query.replace("FROM t", "FROM t WHERE kafka_offset >= 4000"))
    assert shown == [(0, 16_000, 16_000, 19_999), (1, 16_000, 16_000, 19_999)]
    assert flow.value("SELECT count(*) - count(DISTINCT (kafka_partition, kafka_offset)) FROM t") == 0


def test_other_consumers_of_the_topic_do_not_notice(flow: Flow, topic: MakeTopic) -> None:
    name = begun(flow, topic, 5)
    flow.admin.execute("CREATE TABLE other (kafka_partition int, kafka_offset bigint, value text)")
    flow.begin(name, "other")
    flow.read(name)
    seek(flow, name, "1")
    flow.read(name)
    produce_each(flow, name, 1)
    flow.read(name)
    assert landed(flow) == [(0, n) for n in (0, 1, 1, 2, 2, 3, 3, 4, 4, 5)]
    assert flow.column("SELECT kafka_offset FROM other") == [0, 1, 2, 3, 4, 5]


def test_the_end_is_skipped_to_and_what_was_passed_over_is_noted(flow: Flow, topic: MakeTopic) -> None:
    name = read_and_end(flow, topic, 2)
    produce_each(flow, name, 7)
    assert seek(flow, name, "-1") == [(0, 2, 9)]
    flow.begin(name, "t", start_offset=None)
    produce_each(flow, name, 1)
    flow.read(name)
    assert landed(flow) == [(0, 0), (0, 1), (0, 9)]
    assert flow.rows("SELECT topic, from_offset, to_offset FROM pipeline_kafka.seeks") == [(name, 2, 9)]


def test_a_time_is_sought_in_each_partition(flow: Flow, topic: MakeTopic) -> None:
    name = topic(2)
    places(flow)
    produce_each(flow, name, 2, partitions=2)
    between = flow.value("SELECT clock_timestamp()")
    flow.wait("SELECT clock_timestamp() > %s + interval '5 ms'", True, "the clock has gone on", between)
    produce_each(flow, name, 2)
    flow.begin(name, "t")
    flow.read(name)
    assert flow.rows(f"{SEEK}(%s, 't', to_timestamp => %s)", name, between) == [(0, 4, 2), (1, 2, 2)]
    flow.read(name)
    assert landed(flow) == [(0, 0), (0, 1), (0, 2), (0, 2), (0, 3), (0, 3), (1, 0), (1, 1)]


def test_an_offset_that_is_not_there_is_refused_or_taken_as_the_nearest(flow: Flow, topic: MakeTopic) -> None:
    name = begun(flow, topic, 6, partitions=2)
    delete_before(flow, name, 2)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="offset 1 is not there") as refused:
        seek(flow, name, "1")
    assert refused.value.diag.message_detail == f"{name}[0] holds offsets 2 to 6."
    assert "clamp => true" in (refused.value.diag.message_hint or "")
    assert seek(flow, name, "1, clamp => true") == [(0, 6, 2), (1, 6, 1)]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="offset 7 is not there"):
        seek(flow, name, "7, partition => 1")
    assert seek(flow, name, "7, partition => 1, clamp => true")[0][2] == 6
    assert seek(flow, name, "6, partition => 1")[0][2] == 6


def test_what_is_not_there_or_not_yours_is_refused(
    flow: Flow, topic: MakeTopic, connect: Connect, no_local_workers: None
) -> None:
    name = topic()
    places(flow)
    with pytest.raises(psycopg.errors.UndefinedObject, match="there is no consumer"):
        seek(flow, name, "0")
    flow.begin(name, "t")
    with pytest.raises(psycopg.errors.UndefinedObject, match=f'topic "{name}" has no partition 5'):
        seek(flow, name, "0, partition => 5")
    for wrong in ("NULL", "1, to_timestamp => now()", "-3", "to_timestamp => 'infinity'"):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            seek(flow, name, wrong)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="does not read topic other"):
        seek(flow, name, "0, of_topic => 'other'")
    flow.admin.execute("DO $$ BEGIN CREATE ROLE seeker LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    seeker = connect(user="seeker")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function seek"):
        seeker.execute(f"{SEEK}(%s, 't', 0)", [name])
    request = "INSERT INTO pipeline_kafka.answered_requests (function, arguments) VALUES (%s, '{}') RETURNING answer"
    function = "pipeline_kafka.seek(text, regclass, bigint, timestamptz, int, text, boolean, int)"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="role seeker may not execute"):
        seeker.execute(request, [function])
    flow.admin.execute(f"GRANT EXECUTE ON FUNCTION {function} TO seeker".encode())
    with pytest.raises(psycopg.errors.UndefinedObject, match="of yours"):
        seeker.execute(f"{SEEK}(%s, 'public.t', 0)", [name])
    flow.admin.execute("UPDATE pipeline_kafka.consumers SET owner = 'seeker'")
    assert seeker.execute(f"{SEEK}(%s, 'public.t', 0)", [name]).fetchall() == [(0, None, 0)]
    assert flow.value("SELECT current_user") != "seeker"


def test_a_consumer_is_sought_before_it_has_begun(flow: Flow, topic: MakeTopic) -> None:
    name = topic(2)
    places(flow)
    produce_each(flow, name, 5, partitions=2)
    with flow.admin.transaction():
        flow.begin(name, "t", start_offset=-1)
        assert seek(flow, name, "3, partition => 0") == [(0, None, 3)]
    flow.wait_state(name, "t", "running")
    produce_each(flow, name, 1, partitions=2)
    flow.read(name)
    assert landed(flow) == [(0, 3), (0, 4), (0, 5), (1, 5)]


def test_a_pattern_is_sought_as_a_whole_or_by_topic(flow: Flow, topic: MakeTopic) -> None:
    first, second = topic(suffix=".a"), topic(suffix=".b")
    places(flow)
    for name in (first, second):
        produce_each(flow, name, 3)
    pattern = f"^{first.rpartition('-')[0]}"
    flow.begin(pattern, "t")
    flow.read(first)
    flow.read(second)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is a pattern"):
        seek(flow, pattern, "0, partition => 0")
    query = "SELECT topic, partition, from_offset, to_offset FROM pipeline_kafka.seek"
    assert flow.rows(f"{query}(%s, 't', 2, of_topic => %s, partition => 0)", pattern, second) == [(second, 0, 3, 2)]
    flow.read(second)
    assert flow.rows(f"{query}(%s, 't', 1)", pattern) == [(first, 0, 3, 1), (second, 0, 3, 1)]


def test_dead_letters_stay_one_and_are_tried_once_more(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.kafka.produce(name, ["1", "bad", "3"])
    flow.begin(name, "t")
    flow.read(name)
    seek(flow, name, "1")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 3, 3]
    assert flow.rows("SELECT kafka_offset, tries FROM pipeline_kafka.dead_letters") == [(1, 2)]
    status = flow.status(name, "t")
    assert (status["messages"], status["set_aside"], status["lag"]) == (5, 2, 0)


def test_a_consumer_whose_offset_was_lost_goes_on_where_it_is_sent(flow: Flow, topic: MakeTopic) -> None:
    name = read_and_end(flow, topic, 5)
    make_again(flow, name, 10)
    flow.begin(name, "t", start_offset=None)
    assert "seek()" in flow.wait_state(name, "t", "stopped")["last_error"]
    assert seek(flow, name, "8") == [(0, 5, 8)]
    flow.begin(name, "t", start_offset=None)
    flow.read(name)
    assert landed(flow) == [(0, n) for n in (0, 1, 2, 3, 4, 8, 9)]


def test_aborted_messages_stay_out_wherever_it_is_sent(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int, kafka_offset int)")
    flow.begin(name, "t")
    in_a_transaction(flow, name, ["666", "667"], commit=False)
    in_a_transaction(flow, name, ["1", "2"], commit=True)
    flow.read(name)
    for offset in (1, 2, 4):  # in the aborted transaction, at its marker, in the committed one
        seek(flow, name, str(offset))
        flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 1, 1, 2, 2, 2, 2]
    flow.wait("SELECT lag FROM pipeline_kafka.consumers_status", 0, "no lag is left")


def test_a_kafka_that_is_away_is_said_and_nothing_is_locked(
    flow: Flow, topic: MakeTopic, no_local_workers: None
) -> None:
    name = topic()
    places(flow)
    flow.begin(name, "t")
    flow.admin.execute("UPDATE pipeline_kafka.brokers SET host = '127.0.0.1:1'")
    begun = time.monotonic()
    with pytest.raises(psycopg.errors.ConnectionFailure):
        seek(flow, name, "0, timeout => 500")
    assert time.monotonic() - begun < 30


def test_a_table_made_again_goes_on_where_the_dropped_one_was(flow: Flow, topic: MakeTopic) -> None:
    """As docs/operations.md says: a new consumer, sent to where the old one stood, in one transaction."""
    name = begun(flow, topic, 3, partitions=2)
    flow.admin.execute("DROP TABLE t")
    produce_each(flow, name, 2, 2)
    places(flow)
    with flow.admin.transaction():
        flow.begin(name, "t", start_offset=-2)
        ended = flow.value("SELECT c.id FROM pipeline_kafka.consumers c WHERE NOT c.enabled")
        flow.rows(
            """SELECT s.* FROM pipeline_kafka.offsets o,
                           pipeline_kafka.seek(%s, 't', o.next_offset, partition => o.partition) AS s
               WHERE o.consumer_id = %s""",
            name,
            ended,
        )
        flow.admin.execute("DELETE FROM pipeline_kafka.consumers WHERE id = %s", [ended])
    flow.read(name)
    assert landed(flow) == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert len(flow.rows("SELECT FROM pipeline_kafka.consumers_status")) == 1

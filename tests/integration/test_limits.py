"""How far a consumer goes past bad messages: on_error => 'stop', and max_dead_letters."""

from __future__ import annotations

import pytest

from pipeline_kafka.work import Failure
from tests.fix_cluster import Connect, Connection
from tests.fix_feed import MakeFeed
from tests.fix_kafka import MakeTopic
from tests.integration.feeding import TOPIC
from tests.integration.flow import Flow

STOPPED = Failure(retry_in=None)
FORMS = {"json": '{{"id":{}}}', "text": "{}"}


def values(format: str, *ids: object) -> list[str]:
    return [FORMS[format].format(f'"{id}"' if format == "json" and isinstance(id, str) else id) for id in ids]


@pytest.fixture(params=["json", "text"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(admin: Connection) -> None:
    admin.execute("CREATE TABLE t (id int, kafka_partition int)")


# -- on_error => 'stop' -----------------------------------------------------------------------------


def test_stop_loads_what_comes_before(table: None, feed: MakeFeed, format: str) -> None:
    made = feed(format=format, on_error="stop")
    made.send(*values(format, 1))
    assert made.send(*values(format, 2, 3, "x", 5, "y", 6)) == STOPPED
    assert made.column("SELECT id FROM t") == [1, 2, 3]
    assert made.next_offset() == 3
    state = made.state()
    assert (state["state"], state["messages"], state["set_aside"], state["last_sqlstate"]) == ("stopped", 3, 0, "22P02")
    assert f'{TOPIC}[0] offset 3: invalid input syntax for type integer: "x"' in state["last_error"]
    assert "consume_begin()" in state["last_error"]
    assert made.letters() == []


@pytest.mark.parametrize("bad", ["{", '{"id":"x"}'], ids=["refused by the decoder", "refused by the server"])
def test_stop_at_the_first_message_of_a_batch(table: None, feed: MakeFeed, bad: str) -> None:
    made = feed(on_error="stop")
    assert made.send(bad, '{"id":1}') == STOPPED
    assert (made.column("SELECT id FROM t"), made.next_offset(), made.state()["messages"]) == ([], 0, 0)


def test_whichever_refuses_first_decides_where_to_stop(table: None, feed: MakeFeed) -> None:
    for n, (first, second) in enumerate([("{", '{"id":"x"}'), ('{"id":"x"}', "{")]):
        made = feed(on_error="stop", group_id=str(n), topic=TOPIC if n else "other")
        made.send('{"id":1}', first, '{"id":2}', second, '{"id":3}')
        assert made.value("SELECT next_offset FROM pipeline_kafka.offsets WHERE consumer_id = %s", made.id) == 1
    assert made.column("SELECT id FROM t") == [1, 1]


def test_stop_takes_back_what_comes_behind(table: None, feed: MakeFeed, format: str) -> None:
    made = feed(format=format, on_error="stop")
    batch = []
    for partition, ids in {2: (1, 2), 0: (3, "x", 4), 1: (5, 6)}.items():
        batch += [made.message(value, partition) for value in [None, *values(format, *ids)]]
    assert made.load(batch) == STOPPED
    assert made.rows("SELECT id, kafka_partition FROM t ORDER BY id") == [(1, 2), (2, 2), (3, 0)]
    moved = "SELECT partition, next_offset, messages::int, nulls::int FROM pipeline_kafka.offsets ORDER BY 1"
    assert made.rows(moved) == [(0, 2, 2, 1), (1, 0, 0, 0), (2, 3, 3, 1)]


def test_a_stopped_consumer_goes_on_at_the_bad_message(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int CHECK (id <> 3))")
    flow.kafka.produce(name, [f'{{"id":{n}}}' for n in range(6)])
    flow.begin(name, "t", format="json", on_error="stop")
    status = flow.wait_state(name, "t", "stopped")
    assert f"{name}[0] offset 3" in status["last_error"]
    assert flow.column("SELECT id FROM t") == [0, 1, 2]
    flow.admin.execute("ALTER TABLE t DROP CONSTRAINT t_id_check")
    flow.admin.execute("SELECT pipeline_kafka.consume_begin()")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == list(range(6))
    assert flow.status(name, "t")["state"] == "running"


# -- max_dead_letters -------------------------------------------------------------------------------


def test_the_last_letter_that_there_is_room_for_stops(table: None, feed: MakeFeed, format: str) -> None:
    made = feed(format=format, max_dead_letters=3)
    assert made.send(*values(format, 1, "a", 2)) is None
    assert made.send(*values(format, 3, "b", 4, "c", 5, "d", 6)) == STOPPED
    assert made.column("SELECT id FROM t") == [1, 2, 3, 4]
    assert [offset for _, offset, _ in made.letters()] == [1, 4, 6]
    assert made.next_offset() == 7
    state = made.state()
    assert (state["state"], state["messages"], state["set_aside"], state["last_sqlstate"]) == ("stopped", 7, 3, "53400")
    for said in ("max_dead_letters (3) is reached", f"{TOPIC}[0] offset 6", "retry_dead_letters()", "consume_begin()"):
        assert said in state["last_error"]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 6])
def test_letters_of_decoder_and_server_count_together(table: None, feed: MakeFeed, most: int) -> None:
    made = feed(max_dead_letters=most)
    bad = ["{", '{"id":"x"}', "[3]", '{"id":"y"}', "{"]
    batch = [f'{{"id":{n}}}' for n in range(12)]
    for place, value in zip((0, 3, 4, 8, 10), bad, strict=True):
        batch[place] = value
    outcome = made.send(*batch)
    places = [0, 3, 4, 8, 10][:most]
    end = places[-1] if most <= 5 else 11
    assert outcome == (STOPPED if most <= 5 else None)
    assert [offset for _, offset, _ in made.letters()] == places
    assert made.column("SELECT id FROM t") == [n for n in range(end + 1) if n not in places]
    assert made.next_offset() == end + 1


def test_without_room_a_consumer_stops_before_the_next_bad_message(table: None, feed: MakeFeed) -> None:
    made = feed(max_dead_letters=1)
    assert made.send('{"id":"a"}') == STOPPED
    made.admin.execute("UPDATE pipeline_kafka.consumers SET enabled = true")
    assert made.send('{"id":1}', '{"id":"b"}', '{"id":2}') == STOPPED
    assert (made.column("SELECT id FROM t"), made.next_offset(), len(made.letters())) == ([1], 2, 1)
    made.admin.execute(
        "SELECT pipeline_kafka.discard_dead_letters(); UPDATE pipeline_kafka.consumers SET enabled = true"
    )
    made._ends[0] = 2
    assert made.send('{"id":"b"}', '{"id":2}') == STOPPED
    assert [offset for _, offset, _ in made.letters()] == [2]


def test_what_is_skipped_needs_no_room(table: None, feed: MakeFeed) -> None:
    made = feed(on_error="skip", max_dead_letters=1)
    assert made.send('{"id":"a"}', '{"id":"b"}', '{"id":1}') is None
    assert (made.column("SELECT id FROM t"), made.state()["skipped"]) == ([1], 2)


def test_two_workers_do_not_both_fill_the_last_room(table: None, feed: MakeFeed, connect: Connect) -> None:
    made = feed(max_dead_letters=3)
    made.send('{"id":"a"}', '{"id":"b"}')
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM pipeline_kafka.consumers FOR NO KEY UPDATE")
        made.connection.execute("SET lock_timeout = '100ms'")
        failure = made.send('{"id":"c"}')
    assert failure is not None
    assert failure.retry_in
    assert made.state()["last_sqlstate"] == "55P03"


def test_a_storm_stops_at_the_limit(flow: Flow, topic: MakeTopic) -> None:
    name = topic(2)
    for partition in range(2):
        flow.kafka.produce(name, [f'{{"id":"x{n}"}}' for n in range(1_000)], partition=partition)
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t", format="json", max_dead_letters=700)
    status = flow.wait_state(name, "t", "stopped")
    assert (status["set_aside"], status["messages"]) == (700, 700)
    assert flow.value("SELECT count(*) FROM pipeline_kafka.dead_letters") == 700
    flow.admin.execute("ALTER TABLE t ALTER id TYPE text, ADD name text")
    assert flow.rows("SELECT loaded, failed FROM pipeline_kafka.retry_dead_letters()") == [(700, 0)]
    flow.admin.execute("SELECT pipeline_kafka.consume_begin()")
    flow.read(name)
    assert flow.value("SELECT count(*) FROM t") == 2_000


def test_an_empty_array_after_a_bad_message(table: None, feed: MakeFeed) -> None:
    made = feed()
    assert made.send('{"id":"x"}', "[]", '{"id":1}', '{"id":"y"}', "[]") is None
    assert made.column("SELECT id FROM t") == [1]
    assert [offset for _, offset, _ in made.letters()] == [0, 3]

"""Batches for several consumers: at once where nothing is wrong, and part by part where something is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from psycopg import sql

from pipeline_kafka import loader
from pipeline_kafka.errors import PositionLost
from pipeline_kafka.work import Failure, Outcomes
from tests.fix_cluster import Connection
from tests.fix_feed import MakeFeed
from tests.integration.feeding import Feed

ROLES = ("together_one", "together_two")


@pytest.fixture
def feeds(admin: Connection, feed: MakeFeed) -> tuple[Feed, Feed]:
    """Consumers of one topic into the tables t and u."""
    admin.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    return feed("t", format="text"), feed("u", format="text")


def load(feeds: Sequence[Feed], *values: Sequence[str]) -> list[Failure | None]:
    """Load a batch by the first one's loader: messages for each feed. Return how it ended for each."""
    works = [feed.work([feed.message(value) for value in mine]) for feed, mine in zip(feeds, values, strict=True)]
    outcomes: Outcomes = feeds[0].loader.load(works)
    return [outcomes[feed.id] for feed in feeds]


def transactions(feed: Feed) -> int:
    """How many transactions and savepoints wrote the rows that t and u hold."""
    wrote: int = feed.value(
        "SELECT count(DISTINCT x) FROM (SELECT xmin::text FROM t UNION SELECT xmin::text FROM u) AS r(x)"
    )
    return wrote


def ids(feed: Feed) -> tuple[list[int], list[int]]:
    """What t and u hold."""
    return feed.column("SELECT id FROM t"), feed.column("SELECT id FROM u")


def test_a_batch_is_one_transaction_without_savepoints(feeds: tuple[Feed, Feed]) -> None:
    assert load(feeds, ["1", "2"], ["3"]) == [None, None]
    assert ids(feeds[0]) == ([1, 2], [3])
    assert transactions(feeds[0]) == 1
    moved = feeds[0].rows("SELECT next_offset, messages FROM pipeline_kafka.offsets ORDER BY consumer_id")
    assert moved == [(2, 2), (1, 1)]


def test_a_bad_message_sets_no_other_aside_and_care_is_taken_for_a_while(feeds: tuple[Feed, Feed]) -> None:
    assert load(feeds, ["1"], ["2", "x", "3"]) == [None, None]
    assert ids(feeds[0]) == ([1], [2, 3])
    assert feeds[1].letters() == [(0, 1, "22P02")]
    assert transactions(feeds[0]) > 1
    for _ in range(loader.CAREFUL):
        feeds[0].admin.execute("TRUNCATE t, u")
        load(feeds, ["1"], ["2"])
        assert transactions(feeds[0]) == 2
    feeds[0].admin.execute("TRUNCATE t, u")
    load(feeds, ["1"], ["2"])
    assert transactions(feeds[0]) == 1


def test_a_consumer_that_fails_fails_alone(feeds: tuple[Feed, Feed]) -> None:
    feeds[0].admin.execute(
        """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '57P03'; END $$;
           CREATE TRIGGER fail BEFORE INSERT ON u FOR EACH ROW EXECUTE FUNCTION fail()"""
    )
    loaded, failed = load(feeds, ["1"], ["2"])
    assert loaded is None
    assert failed is not None
    assert failed.retry_in
    assert ids(feeds[0]) == ([1], [])
    states = "SELECT relation::text, last_sqlstate FROM pipeline_kafka.consumers_status WHERE last_sqlstate IS NOT NULL"
    assert feeds[0].rows(states) == [("u", "57P03")]
    assert [offset for (offset,) in feeds[0].rows("SELECT next_offset FROM pipeline_kafka.offsets ORDER BY 1")] == [
        0,
        1,
    ]


def test_a_relation_that_changed_meanwhile_is_described_anew(feeds: tuple[Feed, Feed]) -> None:
    works = [feed.work([feed.message("1")]) for feed in feeds]
    feeds[0].admin.execute("ALTER TABLE u ADD COLUMN name text")
    outcomes = feeds[0].loader.load(works)
    assert outcomes == {feeds[0].id: None, feeds[1].id: Failure(retry_in=0.0, counts=False)}
    assert ids(feeds[0]) == ([1], [])


def test_nothing_is_written_where_an_offset_was_moved(feeds: tuple[Feed, Feed]) -> None:
    works = [feed.work([feed.message("1")]) for feed in feeds]
    feeds[0].admin.execute("UPDATE pipeline_kafka.offsets SET next_offset = 5 WHERE consumer_id = %s", [feeds[1].id])
    with pytest.raises(PositionLost, match="1 of 2 partitions"):
        feeds[0].loader.load(works)
    assert ids(feeds[0]) == ([], [])


def test_a_consumer_that_was_ended_meanwhile_writes_nothing(feeds: tuple[Feed, Feed]) -> None:
    works = [feed.work([feed.message("1")]) for feed in feeds]
    feeds[0].admin.execute("UPDATE pipeline_kafka.consumers SET enabled = false WHERE id = %s", [feeds[1].id])
    with pytest.raises(PositionLost):
        feeds[0].loader.load(works)
    assert ids(feeds[0]) == ([], [])


def test_parts_without_a_row_move_their_offsets(feeds: tuple[Feed, Feed]) -> None:
    works = [feed.work([feed.message(None), feed.message(None)]) for feed in feeds]
    assert feeds[0].loader.load(works) == {feeds[0].id: None, feeds[1].id: None}
    assert [feed.rows("SELECT next_offset FROM pipeline_kafka.offsets") for feed in feeds] == [[(2,), (2,)]] * 2


def test_a_deferred_constraint_is_checked_with_its_own_part(feeds: tuple[Feed, Feed]) -> None:
    feeds[0].admin.execute(
        """CREATE TABLE parents (id int PRIMARY KEY); INSERT INTO parents VALUES (1);
           ALTER TABLE u ADD FOREIGN KEY (id) REFERENCES parents DEFERRABLE INITIALLY DEFERRED"""
    )
    assert load(feeds, ["7"], ["1", "2"]) == [None, None]
    assert ids(feeds[0]) == ([7], [1])
    assert feeds[1].letters() == [(0, 1, "23503")]


def test_each_part_is_written_by_its_owner_with_its_search_path(admin: Connection, feed: MakeFeed) -> None:
    """And what one's trigger does to the session is undone before the next one's rows are read."""
    admin.execute(
        """CREATE TABLE seen (by text, path text, style text); GRANT INSERT ON seen TO PUBLIC;
           CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO public.seen
               VALUES (current_user, current_setting('search_path'), current_setting('DateStyle'));
               PERFORM set_config('search_path', 'elsewhere', false), set_config('DateStyle', 'SQL, DMY', false);
               RETURN NEW;
           END $$"""
    )
    feeds = []
    try:
        for role in ROLES:
            name = sql.Identifier(role)
            admin.execute(sql.SQL("CREATE ROLE {}; ALTER ROLE {} SET search_path = {}").format(name, name, name))
            admin.execute(
                sql.SQL(
                    "CREATE TABLE {} (id int); GRANT INSERT ON {} TO {};"
                    "CREATE TRIGGER note BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION note()"
                ).format(name, name, name, name)
            )
            feeds.append(feed(role, format="text", owner=role))
        assert load(feeds, ["1"], ["2"]) == [None, None]
        wrote = feeds[0].rows("SELECT DISTINCT xmin::text FROM seen")
        assert feeds[0].rows("SELECT * FROM seen ORDER BY by") == [(role, role, "ISO, MDY") for role in ROLES]
        assert len(wrote) == 1
    finally:
        for role in ROLES:
            admin.execute(sql.SQL("DROP OWNED BY {}; DROP ROLE {}").format(sql.Identifier(role), sql.Identifier(role)))

"""Rows by their keys as a worker loads them: around bad messages, as the owner, and again as dead letters."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from tests.fix_cluster import Connection
from tests.fix_feed import MakeFeed
from tests.integration.feeding import Feed

BY_KEY = {"on_conflict": "update", "on_null": "delete"}
RETRY = "SELECT retried, loaded, failed FROM pipeline_kafka.retry_dead_letters()"


@pytest.fixture(params=[None, "writer"])
def owner(request: pytest.FixtureRequest, admin: Connection) -> dict[str, str]:
    """The superuser, and a role that may do no more than what it takes."""
    if request.param is None:
        return {}
    admin.execute("DROP ROLE IF EXISTS writer; CREATE ROLE writer")
    admin.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO writer")
    request.addfinalizer(lambda: admin.execute("DROP OWNED BY writer; DROP ROLE writer"))
    return {"owner": "writer"}


def random_messages(feed: Feed) -> list[Message]:
    """300 messages of 7 keys: some delete, some are bad."""
    sent = []
    for n in range(300):
        key = n * n % 7
        if n % 11 == 3:
            sent.append(feed.message(None, key=str(key).encode()))
        elif n % 17 == 5:
            sent.append(feed.message(f'{{"id":{key},"a":"bad"}}'))
        else:
            sent.append(feed.message(f'{{"id":{key},"{"ab"[n % 2]}":{n}}}'))
    return sent


def expected() -> list[tuple[int, int | None, int | None]]:
    rows: dict[int, list[int | None]] = {}
    for n in range(300):
        key = n * n % 7
        if n % 11 == 3:
            rows.pop(key, None)
        elif n % 17 != 5:
            rows.setdefault(key, [None, None])[n % 2] = n
    return sorted((key, *values) for key, values in rows.items())  # type: ignore[misc]


def test_a_batch_is_taken_apart_around_bad_messages(admin: Connection, feed: MakeFeed, owner: dict[str, str]) -> None:
    admin.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int)")
    made = feed(**BY_KEY, **owner)
    assert made.load(random_messages(made)) is None
    assert made.rows("SELECT * FROM t ORDER BY id") == expected()
    assert [offset for _, offset, _ in made.letters()] == [n for n in range(300) if n % 17 == 5 and n % 11 != 3]


def test_rows_of_one_key_in_a_letter(admin: Connection, feed: MakeFeed, owner: dict[str, str]) -> None:
    admin.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int)")
    made = feed(**BY_KEY, **owner)
    made.send('[{"id":1,"a":1},{"id":2,"a":"?"},{"id":1,"b":2},{"id":1,"a":3},{"id":3}]')
    admin.execute("ALTER TABLE t ALTER a TYPE text")
    assert made.rows(RETRY) == [(1, 1, 0)]
    assert made.rows("SELECT * FROM t ORDER BY id") == [(1, "3", 2), (2, "?", None), (3, None, None)]


def test_a_letter_that_deletes(admin: Connection, feed: MakeFeed, owner: dict[str, str]) -> None:
    admin.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE others (id int REFERENCES t)")
    admin.execute("INSERT INTO t VALUES (1), (2); INSERT INTO others VALUES (1)")
    made = feed(**BY_KEY, **owner)
    made.load([made.message(None, key=key) for key in (b"1", b"2", b"x")])
    assert made.column("SELECT id FROM t") == [1]
    assert made.letters() == [(0, 0, "23503"), (0, 2, "22P02")]
    admin.execute("TRUNCATE others")
    assert made.rows(RETRY) == [(2, 1, 1)]
    assert made.column("SELECT id FROM t") == []


@pytest.mark.parametrize(
    ("options", "columns", "value", "row"),
    [
        (
            {"format": "csv", "delimiter": ",", "header": True, "null_string": "-"},
            "id int, name text",
            "i,n\nx,-",
            ("x", None),
        ),
        (
            {"unknown_fields": "rest"},
            "id int, name text, rest jsonb",
            '{"id":"x","y":[1.0]}',
            ("x", None, {"y": [1.0]}),
        ),
        ({"on_conflict": "ignore"}, "id int PRIMARY KEY, name text", '{"id":"x"}', ("x", None)),
        ({"format": "raw", "on_conflict": "ignore"}, "id varchar(1), kafka_offset int PRIMARY KEY", "xy", ("xy", 0)),
    ],
)
def test_every_option_holds_for_letters(
    admin: Connection, feed: MakeFeed, options: dict[str, Any], columns: str, value: str, row: tuple[Any, ...]
) -> None:
    admin.execute(f"CREATE TABLE t ({columns})".encode())
    made = feed(**options)
    made.send(value)
    assert len(made.letters()) == 1
    admin.execute("ALTER TABLE t ALTER id TYPE text")
    assert made.rows(RETRY) == [(1, 1, 0)]
    assert made.rows("SELECT * FROM t") == [row]


def test_messages_without_a_value_are_counted_by_what_becomes_of_them(admin: Connection, feed: MakeFeed) -> None:
    admin.execute("CREATE TABLE t (id int PRIMARY KEY)")
    made = feed(on_null="dead_letter")
    made.send("{}", None, '{"id":1}')
    assert made.letters() == [(0, 0, "23502"), (0, 1, "22004")]
    letter = made.rows("SELECT value, error FROM pipeline_kafka.dead_letters WHERE sqlstate = '22004'")
    assert letter == [(None, "the message has no value (on_null => 'dead_letter')")]

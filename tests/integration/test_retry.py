"""Dead letters fixed and tried again: what lands, what stays, and what is said of it."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.fix_cluster import Connection
from tests.fix_feed import MakeFeed
from tests.integration.feeding import TOPIC, Feed

RETRY = "SELECT retried, loaded, failed FROM pipeline_kafka.retry_dead_letters()"


def test_fix_and_retry_one(letters: Feed) -> None:
    first = letters.value("SELECT min(id) FROM pipeline_kafka.dead_letters")
    assert letters.rows("SELECT pipeline_kafka.fix_dead_letter(%s, '{\"id\":5}')", first) == [("success",)]
    assert letters.rows("SELECT * FROM pipeline_kafka.retry_dead_letter(%s)", first) == [(True, None, None)]
    assert letters.column("SELECT id FROM t") == [5]
    assert letters.letters() == [(0, 1, "22P02"), (0, 2, "22P02")]


def test_what_fails_again_keeps_its_place_with_the_new_error(letters: Feed) -> None:
    letters.admin.execute("ALTER TABLE t ALTER id TYPE text")
    letters.admin.execute("ALTER TABLE t ADD CONSTRAINT short CHECK (id <> 'x1')")
    assert letters.rows(RETRY) == [(3, 2, 1)]
    assert letters.column("SELECT id FROM t") == ["x0", "x2"]
    letter = letters.letter()
    assert (letter["kafka_offset"], letter["sqlstate"], letter["tries"]) == (1, "23514", 2)
    assert letter["error"] == 'new row for relation "t" violates check constraint "short"'
    assert (letter["detail"], letter["column_name"]) == ("Failing row contains (x1, null).", "id")
    assert letter["tried_at"] > letter["failed_at"]


def test_a_dry_run(letters: Feed) -> None:
    with letters.admin.transaction(force_rollback=True):
        letters.admin.execute("ALTER TABLE t ALTER id TYPE text")
        assert letters.rows(RETRY) == [(3, 3, 0)]
        assert letters.column("SELECT id FROM t") == ["x0", "x1", "x2"]
        assert letters.letters() == []
    assert letters.column("SELECT id FROM t") == []
    assert [letter for _, letter, _ in letters.letters()] == [0, 1, 2]


def test_one_that_fails_again_says_why_at_once(letters: Feed) -> None:
    rows = letters.rows(
        """SELECT r.* FROM pipeline_kafka.dead_letters d, pipeline_kafka.retry_dead_letter(d.id) r
           WHERE d.kafka_offset = 1"""
    )
    assert rows == [(False, "22P02", 'invalid input syntax for type integer: "x1"')]
    assert letters.column("SELECT column_name FROM pipeline_kafka.dead_letters") == ["id"] * 3


@pytest.mark.parametrize("function", ["retry_dead_letter(%s)", "discard_dead_letter(%s)", "fix_dead_letter(%s, 'x')"])
def test_a_letter_that_is_not_there(letters: Feed, function: str) -> None:
    for missing in (0, None):
        with pytest.raises(errors.UndefinedObject, match=f"no dead letter {missing if missing == 0 else 'NULL'}"):
            letters.admin.execute(f"SELECT pipeline_kafka.{function}".encode(), (missing,))


@pytest.mark.parametrize("function", ["retry_dead_letters", "discard_dead_letters"])
def test_a_negative_number_of_letters_is_refused(letters: Feed, function: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="max is -5, which is not within 0 to"):
        letters.admin.execute(f"SELECT pipeline_kafka.{function}(max => -5)".encode())
    assert len(letters.letters()) == 3


def test_many_by_predicate(letters: Feed) -> None:
    call = "SELECT retried FROM pipeline_kafka.retry_dead_letters({})"
    for predicate, expected in {
        f"topic => '{TOPIC}'": 3,
        "topic => 'other'": 0,
        "relation => 't'": 3,
        "relation => 'pg_class'": 0,
        "sqlstate => '22P02'": 3,
        "sqlstate => '22'": 3,
        "sqlstate => '23'": 0,
        "max => 2": 2,
        "max => 0": 0,
        f"'{TOPIC}', 't', '22', 1": 1,
    }.items():
        assert letters.value(call.format(predicate)) == expected, predicate


def test_kafkas_order_is_kept(admin: Connection, feed: MakeFeed) -> None:
    admin.execute("CREATE TABLE t (id int, name text, n serial, CHECK (name <> 'x'))")
    made = feed()
    for partition in (1, 0):
        made.send(*(f'{{"id":{n},"name":"x"}}' for n in range(12)), partition=partition)
    admin.execute("ALTER TABLE t DROP CONSTRAINT t_name_check, ADD kafka_partition int; ALTER SEQUENCE t_n_seq RESTART")
    assert made.rows("SELECT retried, loaded FROM pipeline_kafka.retry_dead_letters(max => 20)") == [(20, 20)]
    landed = made.rows("SELECT kafka_partition, id FROM t ORDER BY n")
    assert landed == [(0, n) for n in range(12)] + [(1, n) for n in range(8)]


FORMATS = {
    "json": ({}, '{"id":1,"name":"a\\\\b\\u00e9","tags":["a","b c"],"doc":{"z":[1, 2]},"at":"2024-02-03 04:05+02"}'),
    "json, two rows": ({"format": "json"}, '[{"id":1},{"id":2,"doc":null,"name":"x"}]'),
    "text": ({"format": "text"}, '1\ta\\tb\\101\t{a,"b c"}\t {"z" : "\\\\u0000"}\t2024-02-03'),
    "text, two rows": ({"format": "text"}, "1\t\\N\t\\N\t\\N\t\\N\n2\t\t{}\tnull\t2024-02-03"),
    "text, delimited": ({"format": "text", "delimiter": "|"}, '7|a\\|b|{}|"s"|2024-02-03 04:05:06.789'),
    "csv": ({"format": "csv", "delimiter": ","}, '1,"a,""b""\nc",{a},"{""z"":1}",2024-02-03\n2,,,,'),
    "csv, escaped": ({"format": "csv", "delimiter": ";", "quote": "'", "escape": "\\"}, "1;'it\\'s; \\\\';{};'1';\n"),
}  # fmt: skip
HEADERS = [("h", b"v"), ("h", None), ("b", b"\xff")]


@pytest.mark.parametrize(("options", "value"), FORMATS.values(), ids=FORMATS.keys())
@pytest.mark.parametrize("metadata", [False, True])
def test_a_retry_lands_what_the_worker_would_have_written(
    admin: Connection, feed: MakeFeed, options: dict[str, str], value: str, metadata: bool
) -> None:
    own = """, kafka_topic text, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamptz, kafka_key bytea,
             kafka_headers jsonb""" if metadata else ""  # fmt: skip
    for name in ("t", "u"):
        admin.execute(
            f"CREATE TABLE {name} (id bigint, name text, tags text[], doc json, at timestamptz{own})".encode()
        )
    admin.execute("ALTER TABLE t ADD CONSTRAINT none CHECK (id < 0)")
    refusing, taking = feed("t", **options), feed("u", **options)
    for each in (refusing, taking):
        each.send(value, key=b"k\xff", headers=HEADERS)
    assert refusing.letters() == [(0, 0, "23514")]
    admin.execute("ALTER TABLE t DROP CONSTRAINT none")
    with admin.transaction():  # what a session has set has no say in what a value means
        admin.execute("SET LOCAL DateStyle = 'SQL, DMY'; SET LOCAL search_path = pg_temp")
        assert refusing.rows(RETRY) == [(1, 1, 0)]
    landed = "SELECT doc::text, * FROM public.{}"
    assert refusing.rows(landed.format("t")) == taking.rows(landed.format("u")) != []


@pytest.mark.parametrize(
    ("column", "format", "value"),
    [
        ("body jsonb", "json", '{"z": [1, 2]} '),
        ("body json", "json", ' {"z" : "\\u0000"}\n'),
        ("body text", "json", '"x\\n"'),
        ("body bytea", "raw", b"\x00\xff\\\n"),
        ("body text", "raw", "a\tb\\N\n"),
    ],
)
def test_a_retry_lands_whole_documents_and_bytes(
    admin: Connection, feed: MakeFeed, column: str, format: str, value: str | bytes
) -> None:
    admin.execute(f"CREATE TABLE t ({column}, CONSTRAINT none CHECK (false)); CREATE TABLE u ({column})".encode())
    refusing, taking = feed("t", format=format), feed("u", format=format)
    for each in (refusing, taking):
        each.send(value)
    admin.execute("ALTER TABLE t DROP CONSTRAINT none")
    assert refusing.rows(RETRY) == [(1, 1, 0)]
    assert refusing.rows("SELECT body::text FROM t") == taking.rows("SELECT body::text FROM u") != []


@pytest.mark.parametrize(
    ("format", "value", "sqlstate", "error"),
    [
        ("text", "1", "22P04", 'missing data for column "name"'),
        ("text", "1\ta\tb", "22P04", "extra data after last expected column"),
        ("text", "1\t\\xff", "22021", 'invalid byte sequence for encoding "UTF8": 0xff'),
        ("text", "1\t\\0", "22021", 'invalid byte sequence for encoding "UTF8": 0x00'),
        ("text", "\\N\ta", "23502", 'null value in column "id" of relation "t" violates not-null constraint'),
        ("text", "x\ta", "22P02", 'invalid input syntax for type integer: "x"'),
        ("text", "1\taaaaa", "22001", "value too long for type character varying(4)"),
        ("csv", "1", "22P04", 'missing data for column "name"'),
        ("csv", '1\t"a', "22P04", "unterminated CSV quoted field: the message ends within quotes"),
        ("json", "{", "22P02", "invalid JSON: cut off at byte 1"),
    ],
)
def test_a_retry_says_what_the_worker_said(
    admin: Connection, feed: MakeFeed, format: str, value: str, sqlstate: str, error: str
) -> None:
    admin.execute("CREATE TABLE t (id int NOT NULL, name varchar(4))")
    made = feed(format=format)
    made.send(value)
    said = "SELECT sqlstate, error FROM pipeline_kafka.dead_letters"
    assert made.rows(said) == [(sqlstate, error)]
    assert made.rows(RETRY) == [(1, 0, 1)]
    assert made.rows(said) == [(sqlstate, error)]


def test_a_deferred_constraint_fails_by_itself(admin: Connection, feed: MakeFeed) -> None:
    admin.execute(
        "CREATE TABLE parents (id int PRIMARY KEY);"
        "CREATE TABLE t (id int, parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)"
    )
    made = feed()
    made.send('{"id":1,"parent":1}', '{"id":2,"parent":2}')
    admin.execute("INSERT INTO parents VALUES (2)")
    assert made.rows(RETRY) == [(2, 1, 1)]
    assert made.column("SELECT id FROM t") == [2]
    assert made.letter()["column_name"] == "parent"

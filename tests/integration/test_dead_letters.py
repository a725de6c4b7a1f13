"""Dead letters: what is kept of a message and of the error; looking, discarding, forgetting."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.fix_cluster import Connect, Connection
from tests.fix_feed import MakeFeed
from tests.integration.feeding import SENT_AT, TOPIC, Feed


def test_the_message_and_all_that_the_server_said(admin: Connection, feed: MakeFeed) -> None:
    admin.execute(
        """CREATE TABLE t (id int);
           CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               RAISE 'no %', NEW.id USING DETAIL = 'the detail', HINT = 'the hint', ERRCODE = 'AB123', COLUMN = 'id';
           END $$;
           CREATE TRIGGER judge BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION judge()"""
    )
    made = feed()
    made.send('{"id":7}', key=b"k\xff", headers=[("h", b"v")])
    letter = made.letter()
    assert (letter["topic"], letter["partition"], letter["kafka_offset"]) == (TOPIC, 0, 0)
    assert (letter["key"], letter["value"]) == (b"k\xff", b'{"id":7}')
    assert letter["headers"] == [{"name": "h", "value": "v"}]
    assert letter["kafka_timestamp"].timestamp() * 1000 == SENT_AT
    assert (letter["sqlstate"], letter["error"]) == ("AB123", "no 7")
    assert (letter["detail"], letter["hint"], letter["column_name"]) == ("the detail", "the hint", "id")
    assert letter["context"] == "PL/pgSQL function judge() line 2 at RAISE"
    assert (letter["tries"], letter["failed_at"]) == (1, letter["tried_at"])


@pytest.mark.parametrize(
    ("columns", "format", "value", "column"),
    [
        ("id int, name text", "text", "x\ta", "id"),
        ("id int, name text", "json", '{"id":"x"}', "id"),
        ("id int, name text NOT NULL", "json", '{"id":1}', "name"),
        ("id int, name text, CHECK (id < length(name))", "json", '{"id":9,"name":"a"}', "id, name"),
        ('"a, line 3, column b" int', "text", "x", "a, line 3, column b"),
        ("id int[]", "json", '{"id":["x"]}', None),
    ],
)
def test_the_column_where_it_is_known(
    admin: Connection, feed: MakeFeed, columns: str, format: str, value: str, column: str | None
) -> None:
    admin.execute(f"CREATE TABLE t ({columns})".encode())
    made = feed(format=format)
    made.send(value)
    letter = made.letter()
    assert (letter["column_name"], letter["context"]) == (column, None)


def test_the_columns_of_a_unique_index(admin: Connection, feed: MakeFeed) -> None:
    admin.execute("CREATE TABLE t (id int, name text); CREATE UNIQUE INDEX ON t (name, id)")
    made = feed()
    made.send('{"id":1,"name":"a"}', '{"id":1,"name":"a"}')
    letter = made.letter()
    assert (letter["sqlstate"], letter["column_name"]) == ("23505", "name, id")
    assert letter["detail"] == "Key (name, id)=(a, 1) already exists."


def test_the_columns_of_a_partitions_constraint(admin: Connection, feed: MakeFeed) -> None:
    admin.execute(
        "CREATE TABLE t (id int, name text) PARTITION BY LIST (id); CREATE TABLE one PARTITION OF t FOR VALUES IN (1);"
        "ALTER TABLE one ADD CHECK (name <> 'x')"
    )
    made = feed()
    made.send('{"id":1,"name":"x"}')
    assert made.letter()["column_name"] == "name"


def test_a_table_that_a_trigger_writes_to_is_not_taken_for_the_relation(admin: Connection, feed: MakeFeed) -> None:
    admin.execute(
        """CREATE TABLE t (id int); CREATE TABLE log (other int PRIMARY KEY);
           CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO log VALUES (1); RETURN NEW;
           END $$;
           CREATE TRIGGER note BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()"""
    )
    made = feed()
    made.send('{"id":1}', '{"id":2}')
    letter = made.letter()
    assert (letter["sqlstate"], letter["column_name"]) == ("23505", None)
    assert "note() line 2" in letter["context"]


def test_a_message_that_is_read_again_is_one_letter_still(letters: Feed) -> None:
    letters.rewind()
    letters.send('{"id":"y"}')
    assert letters.rows("SELECT tries, tried_at > failed_at, value FROM pipeline_kafka.dead_letters ORDER BY id") == [
        (2, True, b'{"id":"y"}'),
        (1, False, b'{"id":"x1"}'),
        (1, False, b'{"id":"x2"}'),
    ]


def test_a_thousand_large_letters(admin: Connection, feed: MakeFeed) -> None:
    admin.execute("CREATE TABLE t (id int)")
    made = feed()
    made.send(*('{"id":"%s"}' % ("x" * 30_000) for _ in range(1_500)))
    assert made.value("SELECT count(*) FROM pipeline_kafka.dead_letters WHERE length(value) = 30009") == 1_500


def test_shown_as_text_and_json(admin: Connection, feed: MakeFeed) -> None:
    admin.execute("CREATE TABLE t (id int, name text, CHECK (false))")
    made = feed(format="text")
    values: list[bytes | str] = ['{"id": [1]}', "é\tx", b"\xff\tx", '"\\u0000"\tx', "1\t" + "[" * 20_000, "\0\tx"]
    for n, value in enumerate(values):
        made.send(value, key=b"k%d" % n if n else b"\xff", headers=[("h", b"v")])
    shown = made.rows("SELECT value, json, key FROM pipeline_kafka.dead_letters_shown ORDER BY id")
    assert shown == [
        ('{"id": [1]}', {"id": [1]}, None),
        ("é\tx", None, "k1"),
        (None, None, "k2"),
        ('"\\u0000"\tx', None, "k3"),
        ("1\t" + "[" * 20_000, None, "k4"),
        (None, None, "k5"),
    ]
    where = "SELECT topic, partition, kafka_offset, relation::text, headers FROM pipeline_kafka.dead_letters_shown"
    assert made.rows(where)[0] == (TOPIC, 0, 0, "t", [{"name": "h", "value": "v"}])


def test_what_is_shown_never_raises(admin: Connection) -> None:
    shown = "SELECT pipeline_kafka.shown_json(%s)"
    for text in ('"\\u0000"', '"\\ud800"', "[" * 100_000, "1e999999", "", "nul"):
        assert admin.execute(shown, (text,)).fetchone() == (None,)
    assert admin.execute("SELECT pipeline_kafka.shown_text('\\xff00')").fetchone() == (None,)


def test_the_summary(letters: Feed) -> None:
    letters.admin.execute("ALTER TABLE t ADD CHECK (id > 0)")
    letters.send('{"id":0}')
    summary = "SELECT topic, relation::text, sqlstate, letters, sample_error FROM pipeline_kafka.dead_letters_summary"
    assert letters.rows(summary) == [
        (TOPIC, "t", "22P02", 3, 'invalid input syntax for type integer: "x0"'),
        (TOPIC, "t", "23514", 1, 'new row for relation "t" violates check constraint "t_id_check"'),
    ]
    times = "SELECT first_failed_at < last_failed_at, most_tries, sample_id FROM pipeline_kafka.dead_letters_summary"
    letters.send('{"id":0}')
    assert letters.rows(times) == [(False, 1, 1), (True, 1, 4)]


# -- discarding -------------------------------------------------------------------------------------

OUTCOMES = "SELECT outcome, count::int, by::text FROM pipeline_kafka.dead_letter_outcomes ORDER BY at"


def test_discard_one(letters: Feed) -> None:
    assert letters.value("SELECT pipeline_kafka.discard_dead_letter(2)") == "success"
    assert [offset for _, offset, _ in letters.letters()] == [0, 2]
    assert letters.rows(OUTCOMES) == [("discarded", 1, "postgres")]


def test_discard_many_by_predicate(letters: Feed) -> None:
    call = "SELECT pipeline_kafka.discard_dead_letters({})"
    for predicate, expected in {
        "topic => 'other'": 0,
        "relation => 'pg_class'": 0,
        "sqlstate => '23'": 0,
        "sqlstate => '22', max => 1": 1,
        f"'{TOPIC}', 't', '22P02'": 2,
        "": 0,
    }.items():
        assert letters.value(call.format(predicate)) == expected, predicate
    assert letters.letters() == []
    assert letters.rows(OUTCOMES) == [("discarded", 1, "postgres"), ("discarded", 2, "postgres")]


def test_a_letter_that_another_session_has_is_not_discarded(letters: Feed, connect: Connect) -> None:
    other = connect()
    with other.transaction():
        other.execute("SELECT pipeline_kafka.fix_dead_letter(1, 'x')")
        assert letters.value("SELECT pipeline_kafka.discard_dead_letters()") == 2
        with pytest.raises(errors.LockNotAvailable, match="another session is at work on dead letter 1"):
            letters.admin.execute("SELECT pipeline_kafka.discard_dead_letter(1)")
    assert letters.value("SELECT pipeline_kafka.discard_dead_letters()") == 1


# -- forgetting -------------------------------------------------------------------------------------


def test_letters_expire_some_time_after_their_last_try(letters: Feed) -> None:
    expire = "SELECT pipeline_kafka.expire_dead_letters(%s)"
    letters.admin.execute("UPDATE pipeline_kafka.dead_letters SET tried_at = now() - id * interval '1 day'")
    assert letters.value(expire, 100) == 0
    letters.admin.execute("SELECT pipeline_kafka.set_dead_letter_retention('36 hours')")
    assert (letters.value(expire, 1), letters.value(expire, 100), letters.value(expire, 100)) == (1, 1, 0)
    assert [offset for _, offset, _ in letters.letters()] == [0]
    assert letters.rows(OUTCOMES) == [("expired", 2, "postgres")]
    letters.admin.execute("SELECT pipeline_kafka.set_dead_letter_retention(NULL)")
    letters.admin.execute("UPDATE pipeline_kafka.dead_letters SET tried_at = 'epoch'")
    assert letters.value(expire, 100) == 0


def test_letters_that_are_being_mended_do_not_expire(letters: Feed, connect: Connect) -> None:
    letters.admin.execute("SELECT pipeline_kafka.set_dead_letter_retention('1 day')")
    letters.admin.execute("UPDATE pipeline_kafka.dead_letters SET tried_at = 'epoch'")
    other = connect()
    with other.transaction():
        other.execute("SELECT pipeline_kafka.fix_dead_letter(1, 'x')")
        assert letters.value("SELECT pipeline_kafka.expire_dead_letters(100)") == 2


@pytest.mark.parametrize("keep", ["0", "-1 day"])
def test_letters_are_kept_for_some_time(admin: Connection, keep: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="cannot be kept"):
        admin.execute("SELECT pipeline_kafka.set_dead_letter_retention(%s)", (keep,))


def test_all_that_was_set_aside_is_accounted_for(letters: Feed) -> None:
    letters.send('{"id":"y"}', '{"id":"z"}', '{"id":1}')
    letters.admin.execute("SELECT pipeline_kafka.discard_dead_letter(1)")
    letters.admin.execute("""SELECT pipeline_kafka.fix_dead_letter(2, '{"id":2}')""")
    letters.admin.execute("SELECT pipeline_kafka.retry_dead_letters()")
    account = """SELECT (SELECT sum(set_aside) FROM pipeline_kafka.offsets)::int,
                        (SELECT count(*) FROM pipeline_kafka.dead_letters)::int,
                        (SELECT sum(count) FROM pipeline_kafka.dead_letter_outcomes)::int"""
    assert letters.rows(account) == [(5, 3, 2)]


def test_a_bad_message_comes_now_and_then_between_good_batches(admin: Connection, feed: MakeFeed) -> None:
    admin.execute("CREATE TABLE t (id int CHECK (id > 0))")
    made = feed()
    for _ in range(3):
        assert [made.send('{"id":1}') for _ in range(10)] == [None] * 10
        assert made.send('{"id":1}', '{"id":-1}', '{"id":1}') is None
    assert made.value("SELECT count(*) FROM t") == 36
    assert [offset for _, offset, _ in made.letters()] == [11, 24, 37]

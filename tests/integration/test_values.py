"""What lands, and what is set aside: a table a case, decoded and loaded by a server, without Kafka.

The numbers are those of the catalog of inputs that break systems of this kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, LiteralString, NamedTuple

import psycopg
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from pipeline_kafka.catalog import describe
from pipeline_kafka.decoders import decode
from pipeline_kafka.decoders.payload import Decoded, Reject
from tests.models import consumer

Connection = psycopg.Connection[Any]
Rows = list[tuple[Any, ...]]

T = "id bigint, name text, at timestamptz, amount numeric, ok boolean"


class Landed(NamedTuple):
    """What a batch left: rows, (offset, SQLSTATE) of what was set aside, and the number load() says it wrote."""

    rows: Rows
    aside: list[tuple[int, str]]
    written: int


def send(admin: Connection, values: Sequence[bytes | str], format: str = "json", **settings: Any) -> Landed:
    """Decode and load messages, a value each, into table t."""
    return land(admin, decoded(admin, messages(values), format, **settings))


def messages(values: Sequence[bytes | str]) -> list[Message]:
    return [message(n, value.encode() if isinstance(value, str) else value) for n, value in enumerate(values)]


def message(offset: int, value: bytes | None, **parts: Any) -> Message:
    return Message(topic="events", partition=3, offset=offset, value=value, **parts)


def decoded(admin: Connection, sent: list[Message], format: str, **settings: Any) -> Decoded:
    with admin.transaction():
        admin.execute("SET LOCAL search_path = pg_catalog")  # as the worker's session has it
        relation = describe(admin, admin.execute("SELECT to_regclass('public.t')::oid").fetchall()[0][0])
    return decode(consumer(format, **settings), relation, sent)


def land(admin: Connection, batch: Decoded, look: LiteralString = "SELECT * FROM t") -> Landed:
    rejects = list(batch.rejects)
    with admin.cursor() as cursor:
        written = spread(cursor, batch, 0, len(batch.payload), rejects)
    aside = sorted((reject.message.offset() or 0, reject.sqlstate) for reject in rejects)
    return Landed(admin.execute(look, prepare=False).fetchall(), aside, written)


def spread(cursor: psycopg.Cursor[Any], batch: Decoded, start: int, stop: int, rejects: list[Reject]) -> int:
    """Load a range as the loader does: around the message COPY names, else in halves."""
    try:
        with cursor.connection.transaction():
            return batch.payload.load(cursor, start, stop)
    except psycopg.Error as error:
        if stop - start == 1:
            rejects.append(Reject(batch.payload.messages[start], error.sqlstate or "", str(error)))
            return 0
        hint = batch.payload.locate(error, start)
    parts = [start, (start + stop) // 2, stop] if hint is None else [start, hint, hint + 1, stop]
    written = sum(spread(cursor, batch, *part, rejects) for part in pairwise(parts) if part[0] < part[1])
    assert hint is None or batch.payload.messages[hint] in [reject.message for reject in rejects]
    return written


def table(admin: Connection, columns: str) -> None:
    admin.execute(f"CREATE TABLE t ({columns})")


def test_case_01_escapes_land_as_what_they_stand_for(admin: Connection) -> None:
    table(admin, T)
    landed = send(admin, [r'{"id":1,"name":"a\tb\nc\\d\"e"}'])
    assert landed == ([(1, 'a\tb\nc\\d"e', None, None, None)], [], 1)


def test_case_02_a_zero_character_is_set_aside_and_its_neighbours_get_in(admin: Connection) -> None:
    table(admin, T)
    landed = send(admin, ['{"id":0}', r'{"id":1,"name":"x\u0000y"}', '{"id":2}'])
    assert [row[0] for row in landed.rows] == [0, 2]
    assert landed.aside == [(1, "22P05")]


def test_case_03_thirty_digits(admin: Connection) -> None:
    table(admin, T)
    number = 123456789012345678901234567890
    landed = send(admin, [f'{{"id":{number}}}', f'{{"amount":{number}}}'])
    assert landed == ([(None, None, None, Decimal(number), None)], [(0, "22003")], 1)


def test_case_04_every_digit_is_kept(admin: Connection) -> None:
    table(admin, T)
    send(admin, ['{"amount":0.1000000000000000055511151231257827}', '{"amount":1e400}'])
    amounts = [amount for (amount,) in admin.execute("SELECT amount::text FROM t")]
    assert amounts == ["0.1000000000000000055511151231257827", "1" + "0" * 400]


def test_case_05_absent_fields_take_their_defaults(admin: Connection) -> None:
    table(admin, "id bigint, n serial, made timestamptz DEFAULT now()")
    landed = send(admin, ['{"id":1}', '{"id":2}'])
    assert [row[:2] for row in landed.rows] == [(1, 1), (2, 2)]
    assert all(made for _, _, made in landed.rows)


def test_case_06_null_is_null_where_there_is_a_default(admin: Connection) -> None:
    table(admin, "id bigint, name text DEFAULT 'x'")
    assert send(admin, ['{"id":1,"name":null}']).rows == [(1, None)]


def test_case_07_absent_in_one_message_only(admin: Connection) -> None:
    table(admin, "id bigint, name varchar(3) DEFAULT 'x%s', day date DEFAULT now(), k int DEFAULT 7 % 4")
    landed = send(admin, ['{"id":1}', '{"id":2,"name":"b","day":null,"k":0}'])
    assert [(row[:2], row[3]) for row in landed.rows] == [((1, "x%s"), 3), ((2, "b"), 0)]
    assert [row[2] is None for row in landed.rows] == [False, True]


def test_a_default_that_does_not_fit_is_refused_and_not_cut(admin: Connection) -> None:
    table(admin, "id bigint, name varchar(3) DEFAULT 'abcdef', flags bit(3) DEFAULT B'101'")
    landed = send(admin, ['{"id":1}', '{"id":2,"name":"b"}', '{"id":3,"name":"c","flags":"011"}'])
    assert landed.rows == [(2, "b", "101"), (3, "c", "011")]
    assert landed.aside == [(0, "22001")]


@pytest.mark.parametrize("format", ["json", "text", "csv"])
def test_case_08_empty_is_set_aside_and_a_tombstone_passed_over(admin: Connection, format: str) -> None:
    table(admin, T)
    batch = decoded(admin, [message(0, b""), message(1, None)], format)
    landed = land(admin, batch)
    assert (landed.rows, [offset for offset, _ in landed.aside], batch.nulls) == ([], [0], 1)


def test_case_09_what_is_not_a_row(admin: Connection) -> None:
    table(admin, "id bigint DEFAULT 7")
    admin.execute("ALTER TABLE t ADD other int")
    values: list[bytes | str] = ['{"id":1', "[]", "3", '"x"', "{}", b'{"id":"\xff"}', '[{"id":1},{}]', '[{"id":1},3]']
    landed = send(admin, values)
    assert landed.rows == [(7, None), (1, None), (7, None)]
    assert landed.aside == [(0, "22P02"), (2, "22P02"), (3, "22P02"), (5, "22021"), (7, "22P02")]


@pytest.mark.parametrize("bad", [0, 4321, 9999])
@pytest.mark.parametrize("format", ["json", "text", "csv"])
def test_case_10_one_bad_message_in_ten_thousand(admin: Connection, format: str, bad: int) -> None:
    table(admin, "id int, name text")
    value = '{{"id":"{}","name":"a"}}' if format == "json" else "{}\ta"
    landed = send(admin, [value.format("x" if n == bad else n) for n in range(10000)], format)
    assert [row[0] for row in landed.rows] == [n for n in range(10000) if n != bad]
    assert (landed.aside, landed.written) == ([(bad, "22P02")], 9999)


def test_case_11_text_lines_stay_in_their_message(admin: Connection) -> None:
    table(admin, "id int, name text")
    values = ["1\ta", "2\tb\n\\.\n3\tc", "4", "5\td\n", "6\te\r\n7\tf\\\n!", "8\tg\\", "9\th\\.", "10\t\\\\."]
    landed = send(admin, values, "text")
    assert landed.rows == [(1, "a"), (5, "d"), (6, "e"), (7, "f\n!"), (10, "\\.")]
    assert landed.aside == [(1, "22P04"), (2, "22P04"), (5, "22P04"), (6, "22P04")]


def test_case_12_an_unclosed_quote_takes_no_neighbour_along(admin: Connection) -> None:
    table(admin, "id int, name text")
    values = ["1,a", '2,"b', "3,c", '4,"d\n""d"', "\\.", '5,"\r\n"\r\n6,e', "7", "8,f"]
    landed = send(admin, values, "csv", delimiter=",")
    assert landed.rows == [(1, "a"), (3, "c"), (4, 'd\n"d'), (5, "\r\n"), (6, "e"), (8, "f")]
    assert landed.aside == [(1, "22P04"), (4, "22P04"), (6, "22P04")]


@pytest.mark.parametrize("format", ["json", "text"])
def test_case_13_a_trigger_drops_one_row_and_refuses_another(admin: Connection, format: str) -> None:
    table(admin, "id int, name text")
    admin.execute("""
        CREATE FUNCTION choose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 1 THEN RETURN NULL; END IF;
            IF NEW.id = 2 THEN RAISE 'no twos'; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER choose BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION choose()""")
    value = '{{"id":{},"name":"a"}}' if format == "json" else "{}\ta"
    landed = send(admin, [value.format(n) for n in range(4)], format)
    assert landed == ([(0, "a"), (3, "a")], [(2, "P0001")], 2)


def test_case_18_names_match_exactly(admin: Connection) -> None:
    table(admin, '"ID" bigint, "Name" text, "a.\u00e9 ""%s""" int, id int DEFAULT 5')
    landed = send(admin, [r'{"ID":1,"Name":"x","a.\u00e9 \"%s\"":2,"iD":3}', '{"Id":1,"NAME":"x"}'])
    assert landed.rows == [(1, "x", 2, 5), (None, None, None, 5)]


def test_the_last_of_two_equal_names_wins(admin: Connection) -> None:
    table(admin, "id int, name text")
    assert send(admin, [r'{"id":1,"name":"a","\u0069d":2}']).rows == [(2, "a")]


def test_domains_are_checked_where_there_is_a_value_and_defaults_are_not_needed(admin: Connection) -> None:
    admin.execute("CREATE DOMAIN code AS varchar(3) NOT NULL CHECK (VALUE <> 'no')")
    table(admin, "id int, code code DEFAULT 'def'")
    values = ['{"id":1,"code":"abc"}', '{"id":2}', '{"code":"no"}', '{"code":"long"}', '{"code":null}']
    landed = send(admin, values)
    assert landed.rows == [(1, "abc"), (2, "def")]
    assert landed.aside == [(2, "23514"), (3, "22001"), (4, "23502")]


def test_columns_the_server_fills_are_left_to_it(admin: Connection) -> None:
    table(admin, "n int GENERATED ALWAYS AS IDENTITY, m int GENERATED BY DEFAULT AS IDENTITY,"
                 " id int, half int GENERATED ALWAYS AS (id / 2) STORED")  # fmt: skip
    assert send(admin, ['{"n":9,"id":4,"half":9}', '{"m":7}']).rows == [(1, 1, 4, 2), (2, 7, None, None)]
    assert send(admin, ["8\t6"], "text").rows[2:] == [(3, 8, 6, 3)]


KAFKA = "kafka_topic varchar(6), kafka_partition int2, kafka_offset text, kafka_key text, kafka_headers jsonb"


@pytest.mark.parametrize(
    ("format", "value", "style"),
    [
        ("json", '[{"id":3,"kafka_topic":"x"},{"id":4}]', {}),
        ("text", "3\n4\n", {}),
        ("text", "3\r\n4", {"delimiter": ","}),
        ("csv", "3\r\n4", {"delimiter": ","}),
        ("csv", "3\n4\n", {"delimiter": "k", "quote": "1", "escape": "2"}),
    ],
)
def test_metadata_goes_with_each_row(admin: Connection, format: str, value: str, style: dict[str, str]) -> None:
    table(admin, f"{KAFKA}, id int, kafka_timestamp timestamptz(2)")
    key = '1,2\tk"\\N\r\n\\.'
    headers: list[tuple[str, bytes | None]] = [("a", b'"\\'), ("b", None), ("c", b"\xff")]
    parts = {"key": key.encode(), "headers": headers, "timestamp": (TIMESTAMP_CREATE_TIME, 1999)}
    landed = land(admin, decoded(admin, [message(7, value.encode(), **parts)], format, **style))
    as_json = [{"name": "a", "value": '"\\'}, {"name": "b", "value": None}, {"name": "c", "base64": "/w=="}]
    at = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert landed.rows == [("events", 3, "7", key, as_json, number, at) for number in (3, 4)]


def test_a_key_that_is_no_text_or_does_not_fit_is_set_aside(admin: Connection) -> None:
    table(admin, "id int DEFAULT 1, kafka_key varchar(2)")
    sent = [message(n, b"{}", key=key) for n, key in enumerate([b"ab", b"abc", b"\xff", None])]
    landed = land(admin, decoded(admin, sent, "json"))
    assert landed == ([(1, "ab"), (1, None)], [(1, "22001"), (2, "22021")], 2)


@pytest.mark.parametrize("type", ["json", "jsonb", "text"])
def test_a_single_column_takes_the_document(admin: Connection, type: str) -> None:
    table(admin, f"n int GENERATED ALWAYS AS IDENTITY, doc {type}, kafka_offset int")
    values = [r'{"a": "\\N\t", "a":2}', "[1,\n\t2 ]", "3", '{"a":', r'"\u0000"']
    landed = send(admin, values)
    documents = [text for (text,) in admin.execute("SELECT doc::text FROM t")]
    if type == "jsonb":
        assert (documents, landed.aside) == (['{"a": 2}', "[1, 2]", "3"], [(3, "22P02"), (4, "22P05")])
    else:
        assert (documents, landed.aside) == (values[:3] + values[4:], [(3, "22P02")])


def test_raw_bytes_land_as_they_are(admin: Connection) -> None:
    table(admin, "body bytea")
    values = [bytes(range(256)), b"\\x", b"\\.\n\\N", b""]
    assert [row[0] for row in send(admin, values, "raw").rows] == values
    admin.execute("DROP TABLE t; CREATE TABLE t (body text)")
    assert send(admin, values, "raw") == ([("\\x",), ("\\.\n\\N",), ("",)], [(0, "22021")], 3)


def test_no_search_path_changes_what_a_statement_means(admin: Connection) -> None:
    table(admin, "id int, name text, n int DEFAULT 5, kafka_key text")
    batch = decoded(admin, [message(0, b'{"name":"x"}', key=b"k"), message(1, b'{"name":"y","n":6}')], "json")
    admin.execute("""
        CREATE SCHEMA evil; CREATE DOMAIN evil.text AS int; CREATE DOMAIN evil.bool AS int;
        CREATE FUNCTION evil.unnest(bool[]) RETURNS SETOF bool LANGUAGE sql AS 'SELECT false';
        SET search_path = evil, pg_catalog; SET standard_conforming_strings = off""")
    with admin.cursor() as cursor:
        assert batch.payload.load(cursor, 0, 2) == 2
    rows = admin.execute("SELECT id, name, n, kafka_key FROM public.t").fetchall()
    assert rows == [(None, "x", 5, "k"), (None, "y", 6, None)]

"""on_null: what becomes of a message without a value."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from tests.integration.test_values import Connection, Landed, decoded, land, message, table

T = "id int PRIMARY KEY, a int"

Sent = tuple[bytes | None, bytes | None]  # key and value


def send(admin: Connection, *sent: Sent, **options: Any) -> Landed:
    options = {"format": "json", "on_conflict": "update", "on_null": "delete", **options}
    batch = decoded(admin, [message(n, value, key=key) for n, (key, value) in enumerate(sent)], **options)
    assert batch.nulls == 0
    landed = land(admin, batch)
    return landed._replace(rows=sorted(landed.rows, key=repr))


def gone(key: bytes | None) -> Sent:
    return key, None


def row(text: str) -> Sent:
    return None, text.encode()


@pytest.mark.parametrize("format", ["json", "text", "csv", "raw"])
def test_set_aside_with_a_reason(admin: Connection, format: str) -> None:
    table(admin, "doc text")
    batch = decoded(admin, [message(0, None), message(1, b"1"), message(2, None)], format, on_null="dead_letter")
    assert batch.nulls == 0
    assert [reject.error for reject in batch.rejects] == ["the message has no value (on_null => 'dead_letter')"] * 2
    assert land(admin, batch) == ([("1",)], [(0, "22004"), (2, "22004")], 1)


@pytest.mark.parametrize("key", [b"1", b'"1"', b" 1 ", b'{"id":1}', b'{"b":2,"\\u0069d":"1"}'])
def test_a_key_of_one_column(admin: Connection, key: bytes) -> None:
    table(admin, T)
    assert send(admin, row('{"id":1}'), row('{"id":2}'), gone(key)).rows == [(2, None)]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"k 1", "k 1"),
        (b"", ""),
        (b"007", "007"),
        (b'"k"', "k"),
        (b'{"k":"\\u00e9"}', "é"),
        ("é\\".encode(), "é\\"),
        (b"{k", "{k"),
        (b"1.50", "1.50"),
        (b"true", "true"),
    ],
)
def test_a_key_that_is_text(admin: Connection, key: bytes, text: str) -> None:
    table(admin, "k text PRIMARY KEY, a int")
    admin.execute("INSERT INTO t VALUES (%s), ('other')", [text])
    assert send(admin, gone(key)) == ([("other", None)], [], 1)


def test_a_key_of_several_columns(admin: Connection) -> None:
    table(admin, 'id int, "Day" date, a int, PRIMARY KEY ("Day", id)')
    rows = [row(f'{{"id":{n},"Day":"2024-01-0{n}"}}') for n in (1, 2)]
    landed = send(admin, *rows, gone(b'{"Day":"2024-01-01","id":1,"a":7}'), gone(b'{"id":2}'), gone(b"2"), gone(b"[2]"))
    assert [number for number, *_ in landed.rows] == [2]
    assert landed.aside == [(3, "22004"), (4, "22004"), (5, "22004")]


def test_a_key_that_names_no_row_is_set_aside(admin: Connection) -> None:
    table(admin, T)
    keys = [None, b"null", b"{}", b'{"id":null}', b'"x"', b"\xff", b'"\\u0000"', b"", b"1 2", b"3"]
    landed = send(admin, *map(gone, keys))
    codes = ["22004", "22004", "22004", "22004", "22P02", "22021", "22P05", "22P02", "22P02"]
    assert landed.aside == list(enumerate(codes))


def test_deletes_and_inserts_keep_their_order(admin: Connection) -> None:
    table(admin, "id int PRIMARY KEY, a int, b int DEFAULT 9")
    landed = send(
        admin,
        row('{"id":1,"a":1,"b":1}'),
        gone(b"1"),
        row('{"id":1,"a":2}'),
        gone(b"2"),
        row('{"id":2,"a":3}'),
        gone(b'"2"'),
        row('{"id":3}'),
    )
    assert landed.rows == [(1, 2, 9), (3, None, 9)]


def test_a_delete_is_only_of_that_table(admin: Connection) -> None:
    table(admin, T)
    admin.execute("CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (1, 5); INSERT INTO t VALUES (1, 4)")
    assert send(admin, gone(b"1")).rows == [(1, 5)]


def test_a_row_that_others_need_is_kept_and_the_message_set_aside(admin: Connection) -> None:
    table(admin, T)
    admin.execute("INSERT INTO t VALUES (1), (2)")
    admin.execute("CREATE TABLE other (id int REFERENCES t); INSERT INTO other VALUES (1)")
    assert send(admin, gone(b"1"), gone(b"2")) == ([(1, None)], [(0, "23503")], 1)


@pytest.mark.parametrize(("format", "type"), [("json", "jsonb"), ("raw", "bytea"), ("raw", "text")])
def test_whole_messages_are_deleted_by_their_kafka_key(admin: Connection, format: str, type: str) -> None:
    table(admin, f"kafka_topic text, kafka_key bytea, body {type}, PRIMARY KEY (kafka_topic, kafka_key)")
    sent = (b"\xff", b"1"), (b"{}", b"2"), gone(b"\xff"), gone(None), gone(b"other")
    landed = send(admin, *sent, format=format)
    assert [row[1] for row in landed.rows] == [b"{}"]
    assert landed.aside == []


def test_fields_and_kafka_columns_make_a_key_together(admin: Connection) -> None:
    table(admin, "kafka_topic text, id int, a int, PRIMARY KEY (kafka_topic, id)")
    elsewhere = Message(topic="other", partition=0, offset=1, key=b"1", value=None)
    batch = [message(0, b'{"id":1}'), elsewhere, message(2, None, key=b'{"id":1}')]
    for number, left in ((2, 1), (3, 0)):
        landed = land(admin, decoded(admin, batch[:number], "json", on_conflict="update", on_null="delete"))
        assert len(landed.rows) == left

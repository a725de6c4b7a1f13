"""What is a row, what is not and why, and which formats a relation can take."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

from pipeline_kafka.decoders import decode, syntax
from pipeline_kafka.decoders.insert import insert
from pipeline_kafka.decoders.payload import Misfit, Refused
from pipeline_kafka.decoders.rows import Row
from tests.models import consumer, relation

NO_ROW = "is not a row: send an object, or an array of objects"
NO_TEXT = "; JSON is sent as UTF-8"
TOO_DEEP = "JSON nested too deeply: a worker takes about 900 levels"


@pytest.mark.parametrize(
    ("value", "sqlstate", "reason"),
    [
        (b"", "22P02", "the message is empty, which is not JSON"),
        (b" \n", "22P02", "the message is empty, which is not JSON"),
        (b'{"a":1', "22P02", "invalid JSON: cut off at byte 6"),
        (b'[{"a":1}', "22P02", "invalid JSON: cut off at byte 8"),
        (b"[3,", "22P02", "invalid JSON: cut off at byte 3"),
        (b'{"a":01}', "22P02", "invalid JSON: invalid number (byte 6)"),
        (b'{"a":NaN}', "22P02", "invalid JSON: invalid character (byte 5)"),
        (b'{"a":1}{', "22P02", "invalid JSON: trailing characters (byte 8)"),
        (b"\xef\xbb\xbf{}", "22P02", "invalid JSON: invalid character (byte 0)"),
        (
            b'{"a":"\\ud800"}',
            "22P02",
            "invalid JSON: an escape for half of a surrogate pair, such as \\ud800, which is no character",
        ),
        (b"3", "22P02", f"a number {NO_ROW}"),
        (b' "x"', "22P02", f"a string {NO_ROW}"),
        (b"null", "22P02", f"null {NO_ROW}"),
        (b"true", "22P02", f"a boolean {NO_ROW}"),
        (b'[{"a":1}, [{}]]', "22P02", f"an array (element 2 of the array) {NO_ROW}"),
        (b'{"a":"\xff"}', "22021", f"the message is not UTF-8: byte 0xff at position 6{NO_TEXT}"),
        (b'{"a":\xff', "22021", f"the message is not UTF-8: byte 0xff at position 5{NO_TEXT}"),
        ("{}".encode("utf-16"), "22021", f"the message is not UTF-8: byte 0xff at position 0{NO_TEXT}"),
        ("{}".encode("utf-16-le"), "22021", f"the message has a zero byte at position 1{NO_TEXT}"),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "54001", TOO_DEEP),
        (b"[" * 5000, "54001", TOO_DEEP),
    ],
)
def test_what_is_not_a_row_says_why_and_where(value: bytes, sqlstate: str, reason: str) -> None:
    good = Message(value=b"{}")
    decoded = decode(consumer("json"), relation(a="integer", b="text"), [good, Message(value=value), good])
    assert [(sqlstate, reason)] == [reject[1:] for reject in decoded.rejects]
    assert len(decoded.payload) == 2


def test_rows_are_told_by_their_fields() -> None:
    assert names(b' {"a":1,"b":{"c":[]}} ') == [("a", "b")]
    assert names(b'\n[{"a":1}, {} ]') == [("a",), ()]
    assert names(b"[]") == []


def names(value: bytes) -> list[tuple[str, ...]]:
    return [tuple(fields) for _, fields in syntax.rows(value)]


def rows(*shapes: str) -> list[Row]:
    return [Row(b"{}", frozenset(shape)) for shape in shapes]


def test_documents_may_be_anything() -> None:
    for value in (b"3", b'"x"', b"null", b"[1,[2]]", '{"é":1}'.encode()):
        syntax.document(value)
    with pytest.raises(Refused):
        syntax.document(b'"\xe9"')


def test_the_statement_depends_only_on_which_columns_all_and_some_rows_name() -> None:
    target = relation(a="integer", b="text", c="text")
    first, parameters = insert(target, rows("ab", "a", "ab"), [])
    second, others = insert(target, rows("a", "a", "ab", "ab"), [])
    assert first == second
    assert parameters[::2] == ["{0}", "{0,1,0}"]
    assert others[::2] == ["{1}", "{0,0,1,1}"]
    assert insert(target, rows("a", "b"), [])[0] != first


def test_rows_that_name_nothing_take_defaults() -> None:
    statement, parameters = insert(relation(a="integer"), rows("", "", ""), [])
    assert parameters == [3]
    assert statement.startswith(b"INSERT INTO public.t SELECT  FROM ROWS FROM (pg_catalog.generate_series(1, ")


@pytest.mark.parametrize("format", ["json", "text", "csv", "raw"])
@pytest.mark.parametrize("columns", [{"a": "generated"}, {"kafka_offset": "bigint"}, {}])
def test_a_relation_with_nothing_to_fill_is_a_misfit(format: str, columns: dict[str, str]) -> None:
    with pytest.raises(Misfit, match=r"public\.t has"):
        decode(consumer(format), relation(**columns), [])


@pytest.mark.parametrize("columns", [{"a": "integer"}, {"a": "text", "b": "text"}])
def test_raw_needs_one_column_that_takes_bytes(columns: dict[str, str]) -> None:
    with pytest.raises(Misfit, match=r'one bytea or text column .* public\.t has "a" '):
        decode(consumer("raw"), relation(**columns), [])


def test_tombstones_are_counted_and_passed_over() -> None:
    decoded = decode(consumer("text"), relation(a="text"), [Message(value=None), Message(value=b"x")])
    assert (decoded.nulls, len(decoded.payload), decoded.rejects) == (1, 1, [])

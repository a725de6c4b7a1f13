"""Lines and messages: which message an error of COPY's is about, and what is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Message

from pipeline_kafka.decoders.copying import CopyPayload
from pipeline_kafka.decoders.csv import Quotes
from pipeline_kafka.model import Column, Relation


def payload(fragments: Sequence[bytes], qualified: str = 'public."Or.""der 7"') -> CopyPayload:
    relation = Relation(1, qualified, "r", (), "")
    columns = [Column('a"b', "text", "text", "NULL", False)]
    messages = [Message(offset=n) for n in range(len(fragments))]
    return CopyPayload(relation, columns, "FORMAT csv", messages, fragments, Quotes(b'"', b'"').skew)


def error(context: str | None) -> psycopg.Error:
    return cast(psycopg.Error, SimpleNamespace(diag=SimpleNamespace(context=context)))


@pytest.mark.parametrize(
    "context",
    [
        'COPY Or."der 7, line 3, column a: "9"',
        'COPY Or."der 7, Zeile 3, Spalte a: »9«',
        'Or."der 7のCOPY、行 3、列 a: "9"',
        'Or."der 7 복사, 3번째 줄, a 열: "9"',
        'COPY Or."der 7, 第 3 行',
        'COPY inner, line 8\nPL/pgSQL function f() line 2\nCOPY Or."der 7, line 3: "a\n9"',
    ],
)
def test_the_line_is_read_in_any_language(context: str) -> None:
    messages = payload([b"a", b"b\nc\nd", b"e"])
    assert messages.locate(error(context), 0) == 1
    assert messages.locate(error(context), 1) == 1
    assert messages.locate(error(context), 2) is None


@pytest.mark.parametrize("context", [None, "", 'SQL statement "SELECT 1 FROM ONLY x"', 'COPY Or."der 7'])
def test_an_error_without_a_line_names_no_message(context: str | None) -> None:
    assert payload([b"a"]).locate(error(context), 0) is None


def test_the_line_of_a_hostile_value_is_no_reason_to_fail() -> None:
    assert payload([b"a"]).locate(error(f'COPY Or."der 7, line {"9" * 40}'), 0) is None


def test_line_feeds_in_the_quotes_of_the_first_row_are_not_counted_by_copy() -> None:
    messages = payload([b'"1\n2\r\r\r"\n3\n"4\n5"', b"6"])
    # COPY counts 3 carriage returns, not the line feed, until the first row has ended: 4 lines, where we count 2.
    assert [messages.locate(error(f'COPY Or."der 7, line {line}'), 0) for line in (1, 4, 5, 7, 8)] == [0, 0, 0, 0, 1]


class Sent:
    """A cursor that keeps what is copied."""

    rowcount = 7

    def __init__(self) -> None:
        self.statement = b""
        self.data: list[bytes] = []

    @contextmanager
    def copy(self, statement: bytes) -> Iterator[SimpleNamespace]:
        self.statement = statement
        yield SimpleNamespace(write=self.data.append)


def send(fragments: Sequence[bytes], start: int, stop: int) -> Sent:
    sent = Sent()
    assert payload(fragments).load(cast("psycopg.Cursor[Any]", sent), start, stop) == 7
    return sent


def test_a_range_is_sent_with_every_line_ended() -> None:
    sent = send([b"a", b"b\nc", b"", b"d"], 1, 3)
    assert b"".join(sent.data) == b"b\nc\n\n"
    assert sent.statement == b'COPY public."Or.""der 7" ("a""b") FROM STDIN WITH (FORMAT csv, ENCODING \'UTF8\')'


def test_a_large_batch_is_sent_in_pieces() -> None:
    fragments = [b"x" * 300_000] * 20
    sent = send(fragments, 0, 20)
    assert b"".join(sent.data) == b"".join(fragment + b"\n" for fragment in fragments)
    assert max(map(len, sent.data)) < 1_100_000

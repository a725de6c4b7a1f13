"""Lines cut by fields.py and written by INSERT are what COPY makes of them: the same rows, or refused as well.

Where more than one thing is wrong with a message, which of them is named may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Message
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from pipeline_kafka.catalog import describe
from pipeline_kafka.decoders import decode, fields
from pipeline_kafka.decoders.payload import Payload, Refused
from pipeline_kafka.model import Consumer, Relation
from pipeline_kafka.recorder import Recorder
from pipeline_kafka.session import Data
from pipeline_kafka.tries import Tries
from tests.fix_cluster import Connection
from tests.models import consumer

# A type, and values that it may take: without them, few messages would be rows.
TYPES = {
    "text": [b"some text"],
    "varchar(3)": [b"abc", b"ab ", b"abcd"],
    "int": [b"12", b" -7 "],
    "json": [b'{"x" : 1}', b" [1] ", b'"\\\\u00e9"', b'{"z":"\\\\u0000"}', b"null"],
    "jsonb": [b'{"x" : 1}', b'"a"', b"1.50"],
    "text[]": [b"{}", b"{a,NULL}"],
    "bytea": [b"\\x41", b"\\\\x4142"],
    "numeric(4,1)": [b"1.25", b"NaN"],
    "char(2)": [b"a", b"abc"],
    "boolean": [b"t", b"off"],
    "timestamptz": [b"2024-02-03", b"infinity"],
    "positive": [b"1", b"0"],
}
NAMES = ['"a"', '"kafka %s"', '"x "" y"', '"D"']
PIECES = [
    b"a", b"1", b"\xc3\xa9", b"\xff", b"\\N", b"\\", b"\\n", b"\\101", b"\\x41", b"\\x", b"\\0", b"\\b\\f\\v", b"\\8",
    b"\n", b"\r\n", b"\t", b"|", b",", b";", b'"', b'""', b"'", b"''", b"\\'", b'\\"', b"NULL", b"null", b" ", b"{}",
    b"\\.", b"%s", b"\x00", b"\xe2\x80\xa8",
]  # fmt: skip
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "text": [{}, {"delimiter": "|"}, {"delimiter": ","}, {"delimiter": "'"}],
    "csv": [
        {"delimiter": ","},
        {"delimiter": "\t"},
        {"delimiter": ";", "quote": "'"},
        {"delimiter": ",", "quote": '"', "escape": "\\"},
        {"delimiter": "|", "quote": "'", "escape": '"'},
    ],
}

Outcome = tuple[str, object]  # "rows" and they, or "refused" and the SQLSTATE


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Consumer, bytes]:
    """A table's columns, a consumer into it, and a message with about as many fields as there are columns."""
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=len(NAMES)))
    format = draw(st.sampled_from(sorted(OPTIONS)))
    options = draw(st.sampled_from(OPTIONS[format]))
    delimiter, quote = options.get("delimiter", "\t").encode(), options.get("quote", '"').encode()
    anything = st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join)
    likely = [st.sampled_from([*TYPES[type], b"\\N" if format == "text" else b""]) for type in types]
    if format == "csv":
        likely = [value.map(lambda plain: quote + plain.replace(quote, quote * 2) + quote) | value for value in likely]
    values = [value | value | value | anything for value in likely]
    line = st.tuples(*values) | st.tuples(*values) | st.tuples(*values, anything)
    value = draw(st.lists(line.map(delimiter.join), min_size=1, max_size=2).map(b"\n".join))
    return ", ".join(map(" ".join, zip(NAMES, types, strict=False))), consumer(format, **options), value


class Inserting:
    """A cursor for Payload.load() that does without COPY."""

    def __init__(self, cursor: psycopg.Cursor[Any], relation: Relation) -> None:
        self.rowcount = -1
        self._cursor = cursor
        self._relation = relation

    @contextmanager
    def copy(self, statement: bytes) -> Iterator[Data]:
        data = Data()
        yield data
        query, parameters = fields.insert_from_json(self._relation, fields.parse(statement), bytes(data.pieces))
        self._cursor.execute(query.encode(), parameters)


def outcome(connection: Connection, load: Callable[[psycopg.Cursor[Any]], object]) -> Outcome:
    """What ``load`` comes to in table t; undone afterwards."""
    with connection.transaction(force_rollback=True), connection.cursor() as cursor:
        try:
            load(cursor)
        except (psycopg.Error, Refused) as error:
            return "refused", error.sqlstate
        return "rows", cursor.execute("SELECT t::text FROM public.t ORDER BY ctid").fetchall()


def copying(payload: Payload) -> Callable[[psycopg.Cursor[Any]], object]:
    """By COPY, as a worker loads."""
    return lambda cursor: payload.load(cursor, 0, len(payload))


def inserting(payload: Payload, relation: Relation) -> Callable[[psycopg.Cursor[Any]], object]:
    """By one INSERT, as a dead letter is retried."""
    return lambda cursor: payload.load(cast(Any, Inserting(cursor, relation)), 0, len(payload))


def trying(payload: Payload, relation: Relation) -> Callable[[psycopg.Cursor[Any]], object]:
    """By an INSERT with a parameter a field, as a worker loads around bad messages."""

    def load(cursor: psycopg.Cursor[Any]) -> None:
        cursor.execute("DEALLOCATE ALL")
        (error,) = Tries(cursor.connection).each([Recorder(relation).record(payload, 0)])
        if error is not None:
            raise error

    return load


@pytest.fixture
def connection(admin: Connection) -> Connection:
    admin.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    admin.prepare_threshold = None
    return admin


@settings(database=None, max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_inserting_is_copying(connection: Connection, case: tuple[str, Consumer, bytes]) -> None:
    columns, reader, value = case
    with connection.transaction(force_rollback=True):
        connection.execute(f"CREATE TABLE t ({columns}); SET LOCAL search_path = pg_catalog".encode())
        relation = describe(connection, connection.execute("SELECT 'public.t'::regclass::oid::int8").fetchall()[0][0])
        decoded = decode(reader, relation, [Message(topic="t", partition=0, offset=0, value=value)])
        if len(decoded.payload):
            copied = outcome(connection, copying(decoded.payload))
            event(copied[0])
            for other in (inserting, trying):
                done = outcome(connection, other(decoded.payload, relation))
                assert done == copied or {done[0], copied[0]} == {"refused"}

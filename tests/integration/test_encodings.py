"""Databases whose encoding is not UTF8: what they have a character for lands, and the rest is set aside or refused."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager

import psycopg
import pytest
from psycopg import sql

from pipeline_kafka.decoders.payload import Misfit
from tests.integration.test_values import Connection, decoded, land, message, send, table
from tests.testbed.cluster import Cluster


@contextmanager
def database(cluster: Cluster, encoding: str) -> Generator[Connection]:
    """A connection, as a worker's, to a database of this encoding with the extension; dropped at the end."""
    name = sql.Identifier(f"in_{encoding}")
    make = "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C'"
    with closing(cluster.connect()) as admin:
        admin.execute(sql.SQL(make).format(name, encoding))
        try:
            with closing(cluster.connect(f"in_{encoding}", client_encoding="UTF8")) as connection:
                connection.execute("CREATE EXTENSION pipeline_kafka CASCADE")
                yield connection
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.fixture
def latin(cluster: Cluster) -> Generator[Connection]:
    """One that has é, and no €."""
    with database(cluster, "LATIN1") as connection:
        yield connection


@pytest.fixture
def unknown(cluster: Cluster) -> Generator[Connection]:
    """One that does not know which characters its bytes stand for."""
    with database(cluster, "SQL_ASCII") as connection:
        yield connection


@pytest.mark.parametrize("others", [0, 300])
def test_json_in_latin1(latin: Connection, others: int) -> None:
    table(latin, 'id int, "nam\u00e9" text, doc jsonb, at int DEFAULT 1')
    values = [
        '{"id":1,"nam\u00e9":"\u00e9"}',
        r'{"id":2,"nam\u00e9":"\u00e9","doc":["\u00e9"]}',
        '{"id":3,"nam\u00e9":"\u20ac"}',
        r'{"id":4,"nam\u00e9":"\u20ac"}',
        '{"id":5,"unknown":"\u20ac"}',
        r'{"id":6,"unknown":"\u20ac"}',
        r'{"id":7,"nam\u00e9":"\u20ac and \\u20ac"}'.replace(r"\u20ac and ", ""),
    ]
    plain = ['{"id":0}'] * others
    landed = send(latin, [*plain, *values, *plain])
    rows = [row for row in landed.rows if row[0]]
    assert rows == [(1, "\u00e9", None, 1), (2, "\u00e9", ["\u00e9"], 1), (7, r"\u20ac", None, 1)]
    assert landed.aside == [(others + n, "22P05") for n in range(2, 6)]


@pytest.mark.parametrize("format", ["text", "csv"])
def test_lines_in_latin1(latin: Connection, format: str) -> None:
    table(latin, "id int, name text, kafka_key text")
    sent = [
        message(n, f"{n}\t{text[0]}".encode(), key=text[1:].encode()) for n, text in enumerate(["éa", "€b", "cé", "d€"])
    ]
    landed = land(latin, decoded(latin, sent, format))
    assert (landed.rows, landed.aside) == ([(0, "é", "a"), (2, "c", "é")], [(1, "22P05"), (3, "22P05")])


@pytest.mark.parametrize("on_conflict", ["ignore", "update"])
def test_keys_in_latin1(latin: Connection, on_conflict: str) -> None:
    table(latin, "name text PRIMARY KEY, id int")
    landed = send(latin, ['{"name":"é"}', r'{"name":"\u00e9"}', '{"name":"€"}'], on_conflict=on_conflict)
    assert (landed.rows, landed.aside) == ([("é", None)], [(2, "22P05")])


def test_json_needs_to_know_the_characters(unknown: Connection) -> None:
    table(unknown, "id int, name text")
    with pytest.raises(Misfit, match="SQL_ASCII"):
        decoded(unknown, [], "json")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="SQL_ASCII") as refused:
        unknown.execute("SELECT pipeline_kafka.consume_begin('any', 't', format => 'json')")
    assert "UTF8" in (refused.value.diag.message_hint or "")


@pytest.mark.parametrize("format", ["text", "csv"])
def test_lines_are_bytes_where_nobody_knows_the_characters(unknown: Connection, format: str) -> None:
    table(unknown, "id int, name text")
    landed = send(unknown, ["1\té€", b"2\t\xff", "3\ta"], format)
    assert (landed.rows, landed.aside) == ([(1, "é€"), (3, "a")], [(1, "22021")])

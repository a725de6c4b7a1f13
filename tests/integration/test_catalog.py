"""What CREATE EXTENSION brings, keeps in a dump and takes away again; arguments, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_cluster import Connection

pytestmark = pytest.mark.usefixtures("no_local_workers")

OURS = "pronamespace = 'pipeline_kafka'::regnamespace"


def names(connection: Connection, query: str) -> list[Any]:
    return [name for (name,) in connection.execute(query)]


def test_everything_has_a_comment(admin: Connection) -> None:
    functions = f"SELECT oid::regprocedure::text FROM pg_proc WHERE {OURS} AND obj_description(oid, 'pg_proc') IS NULL"
    assert names(admin, functions) == []
    relations = """SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'pipeline_kafka'::regnamespace
                   AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL"""
    assert names(admin, relations) == []
    assert names(admin, "SELECT obj_description('pipeline_kafka'::regnamespace, 'pg_namespace')") != [None]


def test_functions_do_not_depend_on_anybodys_search_path(admin: Connection) -> None:
    """Procedures name all in full: with a SET they may not commit."""
    loose = f"""SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
                WHERE {OURS} AND l.lanname <> 'c' AND p.prokind <> 'p'
                  AND NOT coalesce(proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)"""
    assert names(admin, loose) == []


def test_functions_are_for_nobody_until_granted(admin: Connection) -> None:
    public = f"SELECT proname::text FROM pg_proc WHERE {OURS} AND has_function_privilege('public', oid, 'EXECUTE')"
    assert names(admin, public) == ["end_as"]


def test_tables_are_for_nobody(admin: Connection) -> None:
    readable = """SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'pipeline_kafka'::regnamespace
                  AND relkind IN ('r', 'v') AND has_any_column_privilege('public', oid, 'SELECT, UPDATE, REFERENCES')"""
    assert names(admin, readable) == ["pipeline_kafka.answered_requests"]  # always empty: for RETURNING
    assert names(admin, "SELECT answer FROM pipeline_kafka.answered_requests") == []


def test_the_arguments_of_1_0_keep_their_places(admin: Connection) -> None:
    admin.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    admin.execute(
        "SELECT pipeline_kafka.consume_begin('topic', 't', 'group', 'csv', ';', '''', '|', 500, 64000, 2, 100, -2)"
    )
    assert admin.execute(
        """SELECT topic, relation::text, group_id, format, delimiter, quote, escape, batchsize, maxbytes, parallelism,
                  timeout, start_offset, on_error, on_offset_lost FROM pipeline_kafka.consumers"""
    ).fetchall() == [("topic", "t", "group", "csv", ";", "'", "|", 500, 64000, 2, 100, -2, "dead_letter", "stop")]
    admin.execute("SELECT pipeline_kafka.consume_begin('topic', 'u')")
    assert admin.execute(
        """SELECT group_id, format, delimiter, quote, escape, batchsize, maxbytes, parallelism, timeout, start_offset
           FROM pipeline_kafka.consumers WHERE relation = 'u'::regclass"""
    ).fetchall() == [(None, "text", "\t", None, None, 25000, 16000000, 1, 250, None)]


def test_beginning_again_changes_the_settings(admin: Connection) -> None:
    admin.execute("CREATE TABLE t (id int)")
    admin.execute("SELECT pipeline_kafka.consume_begin('topic', 't', start_offset => 7)")
    admin.execute(
        "SELECT pipeline_kafka.consume_begin('topic', 't', format => 'json', batchsize => 5, on_error => 'skip')"
    )
    consumers = "SELECT id, format, batchsize, start_offset, on_error, enabled FROM pipeline_kafka.consumers"
    assert admin.execute(consumers).fetchall() == [(1, "json", 5, 7, "skip", True)]


def test_what_is_rolled_back_has_not_happened(admin: Connection) -> None:
    admin.execute("CREATE TABLE t (id int)")
    with admin.transaction(force_rollback=True):
        admin.execute("SELECT pipeline_kafka.add_broker('a:1'), pipeline_kafka.set_property('client.id', 'x')")
        admin.execute("SELECT pipeline_kafka.consume_begin('topic', 't')")
        assert names(admin, "SELECT topic FROM pipeline_kafka.consumers") == ["topic"]
    for table in ("consumers", "brokers", "properties"):
        assert admin.execute(f"SELECT * FROM pipeline_kafka.{table}").fetchall() == []
    admin.execute("SELECT pipeline_kafka.consume_begin('topic', 't')")
    with admin.transaction(force_rollback=True):
        admin.execute("SELECT pipeline_kafka.consume_end('topic', 't')")
    assert names(admin, "SELECT enabled FROM pipeline_kafka.consumers") == [True]


def test_ending_what_is_not_there_is_an_error_that_says_where_to_look(admin: Connection) -> None:
    admin.execute("CREATE TABLE t (id int)")
    with pytest.raises(psycopg.errors.UndefinedObject, match=r"no consumer topic -> public\.t") as refused:
        admin.execute("SELECT pipeline_kafka.consume_end('topic', 't')")
    assert "consumers_status" in (refused.value.diag.message_hint or "")
    assert names(admin, "SELECT pipeline_kafka.consume_end()") == ["success"]
    assert names(admin, "SELECT pipeline_kafka.consume_begin()") == ["success"]


def test_a_consumer_without_a_broker_is_warned_of(admin: Connection) -> None:
    said: list[str] = []
    admin.add_notice_handler(lambda notice: said.append(f"{notice.message_primary} {notice.message_hint}"))
    admin.execute("CREATE TABLE t (id int)")
    admin.execute("SELECT pipeline_kafka.consume_begin('topic', 't')")
    assert [("add_broker" in line) for line in said if "no broker" in line] == [True]

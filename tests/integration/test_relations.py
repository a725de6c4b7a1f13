"""Whatever can be inserted into: kinds of relations, their names, and what is done to them while they are filled."""

from __future__ import annotations

import json

import psycopg
import pytest
from psycopg import sql

from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow

ODD_NAMES = [
    "Capital",
    "a.b",
    'quo"te',
    "apo'strophe",
    "with space",
    "naïve-日本",
    "per%cent %s",
    "back\\slash",
    "select",
]


def test_names_are_taken_as_they_are(flow: Flow, topic: MakeTopic) -> None:
    lines, objects = topic(), topic()
    flow.admin.execute('CREATE SCHEMA "Odd. ""Schema"""')
    tables = [sql.Identifier('Odd. "Schema"', name) for name in ODD_NAMES]
    for name, table in zip(ODD_NAMES, tables, strict=True):
        flow.admin.execute(sql.SQL("CREATE TABLE {} (id int, {} text)").format(table, sql.Identifier(name)))
        flow.begin(lines, table.as_string(flow.admin))
        flow.begin(objects, table.as_string(flow.admin), format="json")
    flow.kafka.produce(lines, ["1\ta", "x\ta"])
    for name in ODD_NAMES:
        flow.kafka.produce(objects, [json.dumps({"id": 2, name: "b"})])
    flow.read(lines)
    flow.read(objects)
    for name, table in zip(ODD_NAMES, tables, strict=True):
        query = sql.SQL("SELECT id, {} FROM {} ORDER BY 1, 2").format(sql.Identifier(name), table)
        landed = flow.admin.execute(query).fetchall()
        assert landed == [(1, "a"), (2, "b"), *[(2, None)] * (len(ODD_NAMES) - 1)], name
    assert flow.aside(lines) == [(0, 1, "22P02")] * len(ODD_NAMES)


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_partitioned_table(flow: Flow, topic: MakeTopic, format: str) -> None:
    name = topic()
    flow.admin.execute(
        """CREATE TABLE t (id int, name text) PARTITION BY RANGE (id);
           CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10);
           CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)"""
    )
    form = "{}\ta" if format == "text" else '{{"id":{},"name":"a"}}'
    flow.kafka.produce(name, [form.format(n) for n in (1, 11, 21, 12, 2)])
    flow.begin(name, "t", format=format)
    flow.read(name)
    assert (flow.column("SELECT id FROM low"), flow.column("SELECT id FROM high")) == ([1, 2], [11, 12])
    assert flow.aside(name) == [(0, 2, "23514")]


@pytest.mark.parametrize("format", ["text", "csv", "json"])
def test_a_view_with_a_trigger_in_place_of_insert(flow: Flow, topic: MakeTopic, format: str) -> None:
    name = topic()
    flow.admin.execute(
        """CREATE TABLE totals (name text PRIMARY KEY, n int);
           CREATE VIEW v AS SELECT 0 AS n, ''::text AS name;
           CREATE FUNCTION add() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO totals VALUES (NEW.name, NEW.n) ON CONFLICT (name) DO UPDATE SET n = totals.n + NEW.n;
               RETURN NEW;
           END $$;
           CREATE TRIGGER add INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION add()"""
    )
    form = {"text": "{}\ta", "csv": "{};a", "json": '{{"n":{},"name":"a"}}'}[format]
    flow.kafka.produce(name, [form.format(n) for n in (1, 2, "x", 3)])
    flow.begin(name, "v", format=format, delimiter=";" if format == "csv" else "\t")
    flow.read(name)
    assert flow.rows("SELECT * FROM totals") == [("a", 6)]
    assert flow.aside(name) == [(0, 2, "22P02")]


def test_a_view_that_is_updatable_by_itself(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int, kind text DEFAULT 'plain'); CREATE VIEW v AS SELECT id FROM t")
    flow.kafka.produce(name, ['{"id":1}'])
    flow.begin(name, "v", format="json")
    flow.read(name)
    assert flow.rows("SELECT * FROM t") == [(1, "plain")]
    with pytest.raises(psycopg.errors.WrongObjectType, match="INSTEAD OF INSERT") as refused:
        flow.begin(name, "v", format="text")
    assert "json" in (refused.value.diag.message_hint or "")


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_foreign_table(flow: Flow, topic: MakeTopic, format: str) -> None:
    name = topic()
    info = flow.admin.info
    flow.admin.execute("CREATE EXTENSION postgres_fdw")
    flow.admin.execute(
        sql.SQL(
            """CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host {}, port {}, dbname {});
               CREATE USER MAPPING FOR PUBLIC SERVER loopback OPTIONS (user {});
               CREATE TABLE t (id int, name text CHECK (name <> 'bad'));
               CREATE FOREIGN TABLE f (id int, name text) SERVER loopback OPTIONS (table_name 't')"""
        ).format(info.host, str(info.port), info.dbname, info.user)
    )
    form = "{}\t{}" if format == "text" else '{{"id":{},"name":"{}"}}'
    flow.kafka.produce(name, [form.format(n, "bad" if n == 50 else "good") for n in range(100)])
    flow.begin(name, "f", format=format)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [n for n in range(100) if n != 50]
    assert flow.aside(name) == [(0, 50, "23514")]


def test_columns_that_the_server_fills(flow: Flow, topic: MakeTopic) -> None:
    lines, objects = topic(), topic()
    flow.admin.execute(
        """CREATE TABLE t (n int GENERATED ALWAYS AS IDENTITY, id int, double int GENERATED ALWAYS AS (id * 2) STORED,
                           name text)"""
    )
    flow.kafka.produce(lines, ["4\ta"])
    flow.kafka.produce(objects, ['{"n":9,"id":5,"double":9,"name":"b"}'])
    flow.begin(lines, "t")
    flow.read(lines)
    flow.begin(objects, "t", format="json")
    flow.read(objects)
    assert flow.rows("SELECT * FROM t ORDER BY n") == [(1, 4, 8, "a"), (2, 5, 10, "b")]


@pytest.mark.parametrize(
    ("relation", "make"),
    [
        ("s", "CREATE SEQUENCE s"),
        ("m", "CREATE MATERIALIZED VIEW m AS SELECT 1 AS id"),
        ("i", "CREATE TABLE t (id int); CREATE INDEX i ON t (id)"),
        ("c", "CREATE TYPE c AS (id int)"),
    ],
)
def test_what_cannot_be_inserted_into_is_refused(flow: Flow, relation: str, make: str) -> None:
    flow.admin.execute(make)
    with pytest.raises(
        psycopg.errors.WrongObjectType, match=f"relation public.{relation} cannot be written to"
    ) as refused:
        flow.begin("any", relation)
    assert "a table" in (refused.value.diag.message_hint or "")
    with pytest.raises(psycopg.errors.UndefinedTable):
        flow.begin("any", "no_such_relation")
    assert flow.rows("SELECT * FROM pipeline_kafka.consumers") == []


def test_a_relation_may_be_renamed_and_moved(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.kafka.produce(name, ["1"])
    flow.admin.execute("CREATE SCHEMA elsewhere; CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.read(name)
    flow.admin.execute('ALTER TABLE t RENAME TO "New name"')
    flow.kafka.produce(name, ["2", "x"])
    flow.read(name)
    flow.admin.execute('ALTER TABLE "New name" SET SCHEMA elsewhere; CREATE TABLE t (id int)')
    flow.kafka.produce(name, ["3"])
    flow.read(name)
    assert flow.column('SELECT id FROM elsewhere."New name"') == [1, 2, 3]
    assert flow.column("SELECT id FROM t") == []
    assert flow.status(name, 'elsewhere."New name"')["state"] == "running"
    assert flow.aside(name) == [(0, 2, "22P02")]


def produce_and_read(flow: Flow, topic: str, *messages: str) -> None:
    flow.kafka.produce(topic, messages)
    flow.read(topic)


def test_a_column_that_is_added_is_used_from_the_next_batch(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int, old text)")
    flow.begin(name, "t", format="json")
    produce_and_read(flow, name, '{"id":0}')
    produce_and_read(flow, name, '{"id":1,"new":"a"}')
    flow.admin.execute("ALTER TABLE t ADD new text, ADD kafka_offset bigint")
    produce_and_read(flow, name, '{"id":2,"new":"b"}')
    landed = flow.rows("SELECT id, new, kafka_offset FROM t ORDER BY id")
    assert landed == [(0, None, None), (1, None, None), (2, "b", 2)]
    assert flow.aside(name) == []


def test_a_column_that_is_dropped_is_not_missed(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int, old text)")
    flow.begin(name, "t", format="json")
    flow.kafka.produce(name, ['{"id":1,"old":"a"}'])
    flow.read(name)
    flow.admin.execute("ALTER TABLE t DROP old")
    flow.kafka.produce(name, ['{"id":2,"old":"b"}'])
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]
    assert flow.aside(name) == []


def test_a_type_and_a_default_that_are_changed_are_used_from_the_next_batch(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int, word text DEFAULT 'old')")
    flow.begin(name, "t", format="json")
    produce_and_read(flow, name, '{"id":0}')
    produce_and_read(flow, name, '{"id":1}', '{"id":"one","word":"x"}')
    flow.admin.execute("ALTER TABLE t ALTER id TYPE text, ALTER word SET DEFAULT 'new'")
    produce_and_read(flow, name, '{"id":"two"}', '{"id":3,"word":"given"}')
    landed = flow.rows("SELECT id, word FROM t ORDER BY 1")
    assert landed == [("0", "old"), ("1", "old"), ("3", "given"), ("two", "new")]
    assert flow.aside(name) == [(0, 2, "22P02")]


def test_a_relation_that_is_dropped_ends_its_consumer_and_no_other(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE SCHEMA s; CREATE TABLE s.t (id int); CREATE TABLE u (id int)")
    flow.begin(name, "s.t")
    flow.begin(name, "u")
    flow.kafka.produce(name, ["1"])
    flow.read(name)
    flow.admin.execute("DROP SCHEMA s CASCADE")
    flow.kafka.produce(name, ["2"])
    flow.read(name)
    assert flow.column("SELECT id FROM u") == [1, 2]
    states = flow.rows("SELECT state, last_error FROM pipeline_kafka.consumers_status ORDER BY state")
    assert states == [("running", None), ("stopped", "relation s.t was dropped")]
    flow.admin.execute("SELECT pipeline_kafka.consume_begin()")
    assert flow.column("SELECT state FROM pipeline_kafka.consumers_status") == ["running", "stopped"]


def test_a_drop_that_is_rolled_back_ends_nothing(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t")
    flow.kafka.produce(name, ["1"])
    flow.read(name)
    with flow.admin.transaction(force_rollback=True):
        flow.admin.execute("DROP TABLE t")
    flow.kafka.produce(name, ["2"])
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]
    assert flow.status(name, "t")["state"] == "running"

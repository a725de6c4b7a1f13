"""What consume_begin() says of options that do not go together, or not with the relation; nothing is stored."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest

from tests.fix_cluster import Connection, new_database
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, name text, rest jsonb, plain json, made jsonb GENERATED ALWAYS AS ('{}') STORED,
                kafka_headers jsonb, CONSTRAINT names UNIQUE (name), CONSTRAINT slow UNIQUE (name, id) DEFERRABLE,
                EXCLUDE USING btree (id WITH =));
CREATE UNIQUE INDEX partly ON t (name) WHERE id > 0;
CREATE UNIQUE INDEX computed ON t (lower(name));
CREATE UNIQUE INDEX "In Dex" ON t (name, id) INCLUDE (rest);
CREATE TABLE keyless (id int);
CREATE TABLE later (id int PRIMARY KEY DEFERRABLE);
CREATE TABLE ours (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
CREATE TABLE ruled (id int PRIMARY KEY); CREATE RULE no AS ON UPDATE TO ruled DO INSTEAD NOTHING;
CREATE VIEW v AS SELECT id, name FROM t;
CREATE TABLE odd (id int, kafka_offset timestamptz);
CREATE TABLE about (kafka_key text, kafka_offset bigint);
CREATE VIEW readonly AS SELECT count(*) AS n FROM t;
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)"""


@pytest.fixture(scope="module")
def database(cluster: Cluster) -> Generator[Database]:
    """One for all, since nothing is stored."""
    for database in new_database(cluster):
        with database.connect() as admin:
            admin.execute(TABLES)
        yield database


def begin(connection: Connection, relation: str, arguments: str) -> None:
    connection.execute(f"SELECT pipeline_kafka.consume_begin('topic', '{relation}', {arguments})".encode())


@pytest.mark.parametrize(
    ("relation", "arguments", "sqlstate", "said"),
    [
        ("t", "header => true", "22023", "header goes with"),
        ("t", "header => true, format => 'json'", "22023", "header goes with"),
        ("t", "null_string => '', format => 'json'", "22023", "null_string goes with"),
        ("t", "null_string => E'a\\nb'", "22023", "null_string is"),
        ("t", "null_string => E'a\\tb'", "22023", "null_string is"),
        ("t", "null_string => E'a\\\\'", "22023", "null_string is"),
        ("t", "null_string => 'a\"b', format => 'csv'", "22023", "null_string is"),
        ("t", "null_string => 'a,b', format => 'csv', delimiter => ','", "22023", "null_string is"),
        ("t", "unknown_fields => 'error'", "22023", "unknown_fields goes with"),
        ("t", "unknown_fields => 'rest'", "22023", 'unknown_fields is "rest"'),
        ("t", "format => 'json', unknown_fields => 'nope'", "22023", 'unknown_fields is "nope"'),
        ("t", "format => 'json', unknown_fields => 'plain'", "22023", "jsonb"),
        ("t", "format => 'json', unknown_fields => 'made'", "22023", "jsonb"),
        ("t", "format => 'json', unknown_fields => 'kafka_headers'", "22023", "jsonb"),
        ("t", "format => 'json', on_null => 'delete'", "22023", "on_conflict => 'update'"),
        ("t", "format => 'json', on_null => 'delete', on_conflict => 'ignore'", "22023", "on_conflict => 'update'"),
        ("t", "format => 'json', conflict_key => 'names'", "22023", "conflict_key goes with"),
        ("t", "on_conflict => 'update'", "0A000", "'json' and 'raw', not 'text'"),
        ("t", "on_conflict => 'ignore', format => 'csv'", "0A000", "'json' and 'raw', not 'csv'"),
        ("v", "format => 'json', on_conflict => 'update'", "42809", "needs a table"),
        ("t", "format => 'raw'", "42804", "format raw needs a relation with one bytea or text column"),
        ("odd", "format => 'json'", "42804", 'column "kafka_offset" is of type timestamp with time zone'),
        ("about", "format => 'json'", "42804", "format json needs a column to fill"),
        ("readonly", "format => 'json'", "42809", "takes no rows"),
        ("readonly", "format => 'csv'", "42809", "takes no rows"),
        ("ruled", "format => 'json', on_conflict => 'update'", "0A000", "rules"),
        ("keyless", "format => 'json', on_conflict => 'ignore'", "42704", "has no primary key"),
        ("later", "format => 'json', on_conflict => 'update'", "42704", "has no primary key"),
        ("ours", "format => 'json', on_conflict => 'update'", "22023", "no message can name: id"),
        *[
            (
                "t",
                f"format => 'json', on_conflict => 'update', conflict_key => '{key}'",
                "42704",
                f'conflict_key is "{key}"',
            )
            for key in ("nope", "partly", "computed", "slow", "t_id_excl", "names_")
        ],
    ],
)
def test_what_does_not_go_together_is_refused(
    admin: Connection, relation: str, arguments: str, sqlstate: str, said: str
) -> None:
    with pytest.raises(psycopg.Error) as refused:
        begin(admin, relation, arguments)
    diag = refused.value.diag
    assert (diag.sqlstate, said in (diag.message_primary or "")) == (sqlstate, True), diag.message_primary
    assert diag.message_hint
    assert admin.execute("SELECT * FROM pipeline_kafka.consumers").fetchall() == []


def test_the_hint_names_the_keys_there_are(admin: Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject) as refused:
        begin(admin, "t", "format => 'json', on_conflict => 'update', conflict_key => 'nope'")
    assert (refused.value.diag.message_hint or "").endswith("Usable: t_pkey, In Dex, names.")


@pytest.mark.parametrize(
    ("relation", "arguments"),
    [
        ("t", "format => 'json', unknown_fields => 'rest', on_conflict => 'update', on_null => 'delete'"),
        ("t", "format => 'json', on_conflict => 'ignore', conflict_key => 'names'"),
        ("t", "format => 'json', on_conflict => 'update', conflict_key => 'In Dex'"),
        ("parts", "format => 'json', on_conflict => 'update'"),
        ("t", "format => 'csv', delimiter => ',', header => true, null_string => 'NULL'"),
        ("v", "format => 'json', unknown_fields => 'error', on_null => 'dead_letter'"),
    ],
)
def test_what_goes_together_is_taken(admin: Connection, relation: str, arguments: str) -> None:
    with admin.transaction(force_rollback=True):
        begin(admin, relation, arguments)


@pytest.mark.parametrize(
    ("options", "granted", "lacking"),
    [
        ("on_conflict => 'ignore'", "INSERT", "SELECT"),
        ("on_conflict => 'update'", "INSERT, SELECT", "UPDATE"),
        ("on_conflict => 'update', on_null => 'delete'", "INSERT, SELECT, UPDATE", "DELETE"),
    ],
)
def test_the_owner_needs_the_privileges_it_takes(admin: Connection, options: str, granted: str, lacking: str) -> None:
    with admin.transaction(force_rollback=True):
        admin.execute("CREATE ROLE upserter; GRANT USAGE ON SCHEMA public TO upserter")
        functions = (
            "FUNCTION pipeline_kafka.consume_begin(text, regclass, text, text, text, text, text, int, int, int, int,"
        )
        functions += " bigint, text, text, text, boolean, text, text, text, text, bigint,"
        functions += " timestamptz, bigint, interval, text, text, text, text, boolean)"
        admin.execute(f"GRANT EXECUTE ON {functions} TO upserter; GRANT {granted} ON t TO upserter".encode())
        admin.execute("SET LOCAL ROLE upserter")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"role upserter lacks {lacking}") as refused:
            begin(admin, "t", f"format => 'json', {options}")
        assert refused.value.diag.message_hint == f"GRANT {lacking} ON public.t TO upserter;"


def test_what_goes_with_a_format_or_a_conflict_is_not_kept_for_another(admin: Connection) -> None:
    shown = (
        "SELECT format, header, null_string, unknown_fields, on_conflict, conflict_key FROM pipeline_kafka.consumers"
    )
    steps = [
        ("format => 'csv', header => true, null_string => '-'", ("csv", True, "-", "ignore", "error", None)),
        ("batchsize => 5", ("csv", True, "-", "ignore", "error", None)),
        (
            "format => 'json', on_conflict => 'ignore', conflict_key => 'names'",
            ("json", False, None, "ignore", "ignore", "names"),
        ),
        ("unknown_fields => 'rest'", ("json", False, None, "rest", "ignore", "names")),
        ("on_conflict => 'update'", ("json", False, None, "rest", "update", None)),
        ("format => 'text', on_conflict => 'error'", ("text", False, None, "ignore", "error", None)),
    ]
    with admin.transaction(force_rollback=True):
        for arguments, expected in steps:
            begin(admin, "t", arguments)
            assert admin.execute(shown).fetchall() == [expected]

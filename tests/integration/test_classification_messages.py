"""Errors that are a message's own fault, each provoked for real: it is set aside, and its neighbours get in."""

from __future__ import annotations

import pytest

from pipeline_kafka.errors import DEFAULTS, Action
from tests.fix_cluster import Connection
from tests.fix_feed import MakeFeed
from tests.integration.classes import BY_ROLE, raising, trigger

GOOD = ['{"id":1,"name":"a"}', '{"id":3,"name":"c"}']
BAD = '{"id":2,"name":"b"}'

# What makes t(id int, name text) refuse a message -> the SQLSTATE of it; the message, where it is not BAD.
CASES = {
    "unique": ("23505", "ALTER TABLE t ADD UNIQUE (id); INSERT INTO t VALUES (2)", BAD),
    "foreign key": ("23503", "CREATE TABLE p (id int UNIQUE); INSERT INTO p VALUES (1), (3);"
                             "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES p (id)", BAD),
    "check": ("23514", "ALTER TABLE t ADD CHECK (name <> 'b')", BAD),
    "check of a domain": ("23514", "CREATE DOMAIN odd AS int CHECK (VALUE % 2 = 1); ALTER TABLE t ALTER id TYPE odd",
                          BAD),
    "not null": ("23502", "ALTER TABLE t ALTER id SET NOT NULL", '{"name":"b"}'),
    "exclusion": ("23P01", "ALTER TABLE t ADD EXCLUDE (id WITH =); INSERT INTO t VALUES (2)", BAD),
    "no partition": ("23514", "DROP TABLE t; CREATE TABLE t (id int, name text) PARTITION BY LIST (id);"
                              "CREATE TABLE o PARTITION OF t FOR VALUES IN (1, 3)", BAD),
    "out of range": ("22003", "", '{"id":99999999999}'),
    "too long": ("22001", "ALTER TABLE t ALTER name TYPE varchar(1)", '{"name":"bb"}'),
    "invalid text": ("22P02", "", '{"id":"two"}'),
    "division by zero": ("22012", "ALTER TABLE t ADD x int GENERATED ALWAYS AS (1 / (id - 2)) STORED", BAD),
    "not JSON": ("22P02", "", '{"id":2'),
    "not UTF-8": ("22021", "", b'{"id":2,"name":"\xff"}'),
    "zero character": ("22P05", "", '{"id":2,"name":"\\u0000"}'),
    "index row too large": ("54000", "CREATE INDEX ON t (name)", ""),
    "too deep": ("54001", trigger("PERFORM f()") + ";CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql"
                          " AS 'BEGIN RETURN f(); END'", BAD),
    "RAISE": ("P0001", trigger("RAISE 'no'"), BAD),
    "RAISE with a code of its own": ("AB123", raising("AB123"), BAD),
    "ASSERT": ("P0004", trigger("ASSERT false"), BAD),
    "CASE without a match": ("20000", trigger("CASE 1 WHEN 2 THEN NULL; END CASE"), BAD),
    "CHECK OPTION": ("44000", "ALTER TABLE t RENAME TO u;"
                              "CREATE VIEW t AS SELECT * FROM u WHERE id <> 2 WITH CHECK OPTION", BAD),
}  # fmt: skip


@pytest.mark.parametrize(("sqlstate", "setup", "bad"), CASES.values(), ids=CASES.keys())
def test_the_message_is_set_aside(
    admin: Connection, feed: MakeFeed, sqlstate: str, setup: str, bad: str | bytes
) -> None:
    admin.execute("CREATE TABLE t (id int, name text)")
    if setup:
        admin.execute(setup.encode())
    before = admin.execute("SELECT count(*) FROM t").fetchall()
    made = feed(owner=admin.info.user)
    name = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(5_000))  # compresses badly
    assert made.send(GOOD[0], bad or f'{{"id":2,"name":"{name}"}}', GOOD[1]) is None
    assert made.letters() == [(0, 1, sqlstate)]
    assert made.rows("SELECT count(*) - 2 FROM t") == before
    assert made.state()["state"] != "failing"


@pytest.mark.parametrize("format", ["json", "text"])
@pytest.mark.parametrize("owner", ["app", "postgres"])
def test_a_deferred_constraint(admin: Connection, feed: MakeFeed, format: str, owner: str) -> None:
    """At commit it would fail for all; the trigger of a superuser's consumer may even have put it off again."""
    admin.execute(
        BY_ROLE.format(owner)
        + """CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1), (3);
             CREATE TABLE t (id int REFERENCES p DEFERRABLE INITIALLY DEFERRED)"""
    )
    admin.execute(f"GRANT INSERT ON t TO {owner}".encode())
    if owner == "postgres":
        defer = "BEGIN SET CONSTRAINTS ALL DEFERRED; RETURN NEW; END"
        admin.execute(f"CREATE FUNCTION defer() RETURNS trigger LANGUAGE plpgsql AS '{defer}'".encode())
        admin.execute("CREATE TRIGGER defer BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION defer()")
    made = feed(owner=owner, format=format)
    form = '{{"id":{}}}' if format == "json" else "{}"
    assert made.send(*(form.format(n) for n in (1, 2, 3))) is None
    assert made.letters() == [(0, 1, "23503")]
    assert made.column("SELECT id FROM t") == [1, 3]


def test_a_row_that_a_policy_refuses(admin: Connection, feed: MakeFeed) -> None:
    admin.execute(
        BY_ROLE.format("app")
        + """CREATE TABLE t (id int); GRANT INSERT ON t TO app; ALTER TABLE t ENABLE ROW LEVEL SECURITY;
             CREATE POLICY odd ON t FOR INSERT WITH CHECK (id % 2 = 1)"""
    )
    made = feed(owner="app")
    assert made.send('{"id":1}', '{"id":2}', '{"id":3}') is None
    assert made.letters() == [(0, 1, "42501")]
    assert made.column("SELECT id FROM t") == [1, 3]


def test_a_refusal_that_only_sounds_like_a_policys(admin: Connection, feed: MakeFeed) -> None:
    said = "'new row violates row-level security policy for table \"t\"'"
    admin.execute("CREATE TABLE t (id int, name text)")
    admin.execute(trigger(f"RAISE insufficient_privilege USING MESSAGE = {said}").encode())
    failure = feed().send(BAD)
    assert failure is not None
    assert failure.retry_in == 1.0


def test_every_default_that_sets_aside_has_a_case() -> None:
    provoked = {sqlstate[:2] for sqlstate, _, _ in CASES.values()}
    assert {code[:2] for code, default in DEFAULTS.items() if default.action is Action.SET_ASIDE} <= provoked

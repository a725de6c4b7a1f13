"""Errors that no message is to blame for, provoked for real where that can be: nothing is set aside or lost."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import psycopg
import pytest

from pipeline_kafka.errors import DEFAULTS, Action
from tests.fix_cluster import Connect, Connection
from tests.fix_feed import MakeFeed
from tests.integration.classes import BY_ROLE, raising, trigger
from tests.integration.feeding import Feed
from tests.testbed.wait import wait_until

VALUES = ['{"id":1,"name":"a"}', '{"id":2,"name":"b"}', '{"id":3,"name":"c"}']
WAITS = {Action.RETRY: 0.1, Action.PAUSE: 1.0}  # seconds before the first new try
LARGE = """CREATE FUNCTION large() RETURNS bigint LANGUAGE sql SET temp_file_limit = '64kB' SET work_mem = '64kB'
           AS 'SELECT count(*) FROM (SELECT g FROM generate_series(1, 100000) g ORDER BY -g) s';"""

# What makes t(id int, name text) refuse a message for a while -> the SQLSTATE of it.
CASES = {
    "connection": ("08006", raising("08006")),
    "not supported": ("0A000", trigger("PERFORM count(*) FROM t FOR UPDATE")),
    "invalid grantor": ("0L000", raising("0L000")),
    "invalid role": ("0P000", raising("0P000")),
    "read-only": ("25006", trigger("SET LOCAL transaction_read_only = on; INSERT INTO t VALUES (9)")),
    "prepared statement gone": ("26000", trigger("EXECUTE 'DEALLOCATE gone'")),
    "invalid authorization": ("28000", raising("28000")),
    "savepoint": ("3B001", raising("3B001")),
    "undefined database": ("3D000", trigger("PERFORM has_database_privilege('gone', 'connect')")),
    "undefined schema": ("3F000", trigger("CREATE TABLE gone.t ()")),
    "serialization": ("40001", raising("40001")),
    "undefined table": ("42P01", trigger("INSERT INTO gone VALUES (1)")),
    "undefined column": ("42703", trigger("INSERT INTO t (gone) VALUES (1)")),
    "undefined function": ("42883", trigger("PERFORM gone(1)")),
    "privilege": ("42501", raising("42501")),
    "disk full": ("53100", raising("53100")),
    "out of memory": ("53200", raising("53200")),
    "too many connections": ("53300", raising("53300")),
    "temp_file_limit": ("53400", LARGE + trigger("PERFORM large()")),
    "object not ready": ("55000", "CREATE SEQUENCE s;" + trigger("PERFORM currval('s')")),
    "query canceled": ("57014", trigger("PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(60)")),
    "shutting down": ("57P03", raising("57P03")),
    "no such file": ("58P01", trigger("COPY t FROM '/nonexistent'")),
    "snapshot too old": ("72000", raising("72000")),
    "configuration file": ("F0000", raising("F0000")),
    "foreign data wrapper": ("HV000", raising("HV000")),
    "internal": ("XX000", raising("XX000")),
}


@pytest.fixture
def table(admin: Connection) -> None:
    admin.execute("CREATE TABLE t (id int, name text)")


@pytest.mark.parametrize(("sqlstate", "setup"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("format", ["json", "text"])
def test_nothing_is_set_aside(
    table: None, admin: Connection, feed: MakeFeed, sqlstate: str, setup: str, format: str
) -> None:
    admin.execute(setup.encode())
    made = feed(format=format, **({"delimiter": "|"} if format == "text" else {}))
    values = VALUES if format == "json" else ["1|a", "2|b", "3|c"]
    expect_failure(made, values, sqlstate)


def test_a_sequence_at_its_end(admin: Connection, feed: MakeFeed, table: None) -> None:
    admin.execute("CREATE SEQUENCE s MAXVALUE 2; ALTER TABLE t ADD n int DEFAULT nextval('s')")
    expect_failure(feed(), VALUES, "2200H")


def test_a_privilege_that_is_missing(admin: Connection, feed: MakeFeed, table: None) -> None:
    admin.execute(BY_ROLE.format("app"))
    expect_failure(feed(owner="app"), VALUES, "42501")


def test_a_relation_that_is_locked(feed: MakeFeed, table: None, connect: Connect) -> None:
    made, other = feed(), connect()
    made.connection.execute("SET lock_timeout = '100ms'")
    with other.transaction():
        other.execute("LOCK TABLE t")
        expect_failure(made, VALUES, "55P03")


def test_a_statement_that_takes_longer_than_others_wait(admin: Connection, feed: MakeFeed, table: None) -> None:
    admin.execute(trigger("PERFORM pg_sleep(60)").encode())
    made = feed()
    made.patience = 0.2
    expect_failure(made, VALUES, "57014")


def test_a_deadlock(admin: Connection, feed: MakeFeed, connect: Connect) -> None:
    admin.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
    made, other = feed(), connect()
    made.connection.execute("SET deadlock_timeout = '100ms'; SET lock_timeout = '60s'")
    other.execute("SET deadlock_timeout = '60s'")
    with other.transaction(force_rollback=True):
        other.execute("INSERT INTO t VALUES (2)")
        with waiting_for(other, admin, "INSERT INTO t VALUES (1)", made):
            expect_failure(made, VALUES, "40P01")
    assert made.rows("SELECT * FROM t") == []


def test_a_session_that_is_ended(admin: Connection, feed: MakeFeed, table: None) -> None:
    admin.execute(trigger("PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60)").encode())
    made = feed()
    with pytest.raises(psycopg.OperationalError, match="terminating connection"):
        made.send(*VALUES)
    assert (made.rows("SELECT * FROM t"), made.letters()) == ([], [])
    assert made.next_offset() == 0


def test_every_other_default_has_a_case() -> None:
    provoked = {"2200H", *(sqlstate for sqlstate, _ in CASES.values())}
    provoked |= {sqlstate[:2] for sqlstate in provoked}
    assert {code for code, default in DEFAULTS.items() if default.action is not Action.SET_ASIDE} <= provoked


def expect_failure(made: Feed, values: list[str], sqlstate: str) -> None:
    """Send messages that fail: nothing of them is written, and the consumer says why."""
    default = DEFAULTS.get(sqlstate, DEFAULTS[sqlstate[:2]])
    failure = made.send(*values)
    assert failure is not None
    assert failure.retry_in == WAITS[default.action]
    assert made.letters() == []
    assert made.next_offset() == 0
    state = made.state()
    assert (state["last_sqlstate"], state["failures"], state["messages"]) == (sqlstate, 1, 0)


@contextmanager
def waiting_for(other: Connection, admin: Connection, statement: str, made: Feed) -> Generator[None]:
    """Have another session run a statement that comes to wait for the feed's."""
    pid = other.info.backend_pid
    blocked = "SELECT %s = ANY (pg_blocking_pids(pid)) FROM pg_stat_activity WHERE pid = %s"

    def run() -> None:
        wait_until(
            lambda: admin.execute(blocked, (pid, made.connection.info.backend_pid)).fetchone(),
            "the feed waits",
            accept=lambda row: row == (True,),
        )
        other.execute(statement.encode())

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()

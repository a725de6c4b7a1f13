"""What tests of replays do: begin one, look at it, hold it where a message is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from tests.fix_cluster import Connect, Connection
from tests.integration.flow import TIMEOUT
from tests.testbed.wait import wait_until

Row = dict[str, Any]

# For the row with the id 50, where the test has not given its lock back. A worker gives up after its lock_timeout.
HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock_shared(50) WHERE NEW.id = 50;
    RETURN NEW;
END $$;
CREATE TRIGGER hold BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION hold()
"""


def call(connection: Connection, function: str, topic: str, relation: str, **settings: Any) -> Row:
    """replay() or replay_here(); returns its row."""
    named = [sql.SQL(", {} => %s").format(sql.Identifier(name)) for name in settings]
    query = sql.SQL("SELECT * FROM pipeline_kafka.{}(%s, %s{})").format(
        sql.Identifier(function), sql.SQL("").join(named)
    )
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query, [topic, relation, *settings.values()]).fetchone()
    assert row is not None
    return row


def replay(connection: Connection, topic: str, relation: str, **settings: Any) -> int:
    """replay(); returns its id."""
    return int(call(connection, "replay", topic, relation, **settings)["replay"])


def do(connection: Connection, function: str, replay: int) -> None:
    """pause_replay(), resume_replay() or cancel_replay()."""
    query = sql.SQL("SELECT pipeline_kafka.{}(%s)").format(sql.Identifier(function + "_replay"))
    assert connection.execute(query, [replay]).fetchone() == ("success",)


def status(connection: Connection, replay: int) -> Row:
    """A replay's row of replays_status."""
    with connection.cursor(row_factory=dict_row) as cursor:
        (row,) = cursor.execute("SELECT * FROM pipeline_kafka.replays_status WHERE id = %s", [replay]).fetchall()
    return row


def wait_for(connection: Connection, replay: int, state: str, also: Callable[[Row], object] = bool) -> Row:
    """Wait until a replay is in a state, and ``also`` holds for its row of replays_status; return that."""
    return wait_until(
        lambda: status(connection, replay),
        f"replay {replay} is {state}",
        TIMEOUT,
        accept=lambda row: row["state"] == state and also(row),
    )


@contextmanager
def held(connection: Connection, connect: Connect) -> Iterator[None]:
    """Whoever writes the row 50 into t waits until the block ends."""
    connection.execute(HOLD)
    holder = connect()
    holder.execute("SELECT pg_advisory_lock(50)")
    yield
    holder.close()


def waits(connection: Connection) -> bool:
    """Does somebody wait for the row 50?"""
    query = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 50 AND NOT granted"
    return connection.execute(query).fetchone() is not None

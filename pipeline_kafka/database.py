"""Connections to PostgreSQL whose settings no role or database can bend.

In: a libpq connection string. Out: psycopg connections in autocommit mode; transactions are begun in so many words.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

SEARCH_PATH = "pg_catalog, pg_temp"

# Set in the session, over whatever ALTER ROLE or ALTER DATABASE says, because each of them would change what a
# value means, or end the work: a worker waits for locks on its own terms (LOCK_TIMEOUT) and has no other limit.
LOCK_TIMEOUT = "5s"
_SETTINGS = {
    "search_path": SEARCH_PATH,
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "standard_conforming_strings": "on",
    "default_transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "lock_timeout": LOCK_TIMEOUT,
    "row_security": "on",
}


def connect(dsn: str, application_name: str) -> psycopg.Connection[Any]:
    """Open a connection with the worker's settings.

    ``dsn`` is a libpq connection string, ``application_name`` what pg_stat_activity shows.
    Raises psycopg.OperationalError where the server cannot be reached or refuses.
    """
    connection = psycopg.connect(
        dsn,
        autocommit=True,
        application_name=application_name,
        connect_timeout=10,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=30000,
    )
    connection.execute("; ".join(f"SET {name} = {_literal(name, value)}" for name, value in _SETTINGS.items()))
    _english_errors(connection)
    return connection


def _literal(name: str, value: str) -> str:
    return value if name == "search_path" else f"'{value}'"


def _english_errors(connection: psycopg.Connection[Any]) -> None:
    """COPY's "line N" is read from error contexts; only a superuser may choose their language."""
    with suppress(psycopg.errors.InsufficientPrivilege):  # locate() then finds no line, and the batch is halved
        connection.execute("SET lc_messages = 'C'")

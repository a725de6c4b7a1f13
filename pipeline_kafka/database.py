"""Connections to PostgreSQL whose settings no role or database can bend.

In: a libpq connection string. Out: psycopg connections in autocommit mode; transactions are begun in so many words.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from .listening import ListeningCursor

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
    "client_min_messages": "error",  # a trigger's notices would be sent, a row each, to nobody
    "idle_session_timeout": "0",
    "lock_timeout": LOCK_TIMEOUT,
    "row_security": "on",
    # The server must notice that a worker is gone, with its process or with its machine: its transaction holds offsets
    # that another one needs. In the middle of a statement PostgreSQL looks only where it is told to.
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
    "idle_in_transaction_session_timeout": "30s",
}

# What only a superuser may set. COPY's "line N" is read from error contexts, so their language matters; without it
# a batch is halved instead. And a bad row is no news for the server's log: its statement failed, and would be logged
# with all of the batch, once for each try. The worker says what it set aside.
_SUPERUSER_SETTINGS = {
    "lc_messages": "C",
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
    "log_parameter_max_length_on_error": "0",
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
        cursor_factory=ListeningCursor,
        connect_timeout=10,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=30000,
    )
    connection.execute("; ".join(f"SET {name} = {_value(name, value)}" for name, value in _SETTINGS.items()))
    with suppress(psycopg.errors.InsufficientPrivilege):
        connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in _SUPERUSER_SETTINGS.items()))
    return connection


def _value(name: str, value: str) -> str:
    return value if name == "search_path" else f"'{value}'"

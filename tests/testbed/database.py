"""A database of a test's own in a cluster."""

from __future__ import annotations

import contextlib
from operator import not_
from typing import Any

import psycopg
from psycopg import sql

from tests.testbed.cluster import Cluster
from tests.testbed.wait import wait_until

LETTING_GO = 30


class Database:
    """The database ``name`` of ``cluster``; nothing is made until create()."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def create(self) -> Database:
        """Create it, with the extension."""
        with self.cluster.connect() as postgres:
            postgres.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.name)))
        with self.connect() as connection:
            connection.execute("CREATE EXTENSION pipeline_kafka CASCADE")
        return self

    def dsn(self, **parameters: Any) -> str:
        """Its connection string as superuser; ``parameters`` add or replace."""
        return self.cluster.dsn(self.name, **parameters)

    def connect(self, autocommit: bool = True, **parameters: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection; the caller closes it."""
        return self.cluster.connect(self.name, autocommit, **parameters)

    def drop(self) -> None:
        """End its consumers, wait until everyone has let go of it, and drop it.

        Raises TimeoutError that names who is still there after LETTING_GO s; it is dropped all the same.
        """
        self._end_consumers()
        with self.cluster.connect() as postgres:
            try:
                wait_until(lambda: self._users(postgres), f"all have left {self.name}", LETTING_GO, accept=not_)
            finally:
                name = sql.Identifier(self.name)
                postgres.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def _end_consumers(self) -> None:
        """Ask the workers to stop, where the test has left database and extension standing."""
        gone = (psycopg.OperationalError, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction)
        with contextlib.suppress(*gone), self.connect() as connection:
            connection.execute("SELECT pipeline_kafka.consume_end()")

    def _users(self, postgres: psycopg.Connection[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Who is connected to it, and the server's workers for it (which are connected to none)."""
        return postgres.execute(
            """SELECT a.pid, a.backend_type, a.application_name, a.state, a.query
               FROM pg_stat_activity a JOIN pg_database d ON d.datname = %s
               WHERE a.datid = d.oid OR a.application_name LIKE format('pipeline_kafka worker %%s/%%%%', d.oid)""",
            [self.name],
        ).fetchall()

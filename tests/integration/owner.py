"""The owner of a relation, with a trap in its trigger, and a worker's session that writes as that owner."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import sql

from tests.fix_cluster import Connection


class Owner:
    """A role without privileges that owns the tables t(id) and seen(what); what t's trigger does is up to plant()."""

    def __init__(self, admin: Connection) -> None:
        self.admin = admin
        self.name = f"owner_{secrets.token_hex(4)}"
        admin.execute(f"CREATE ROLE {self.name} LOGIN; GRANT CREATE ON SCHEMA public TO {self.name}".encode())
        self.oid: int = value(admin, f"SELECT '{self.name}'::regrole::oid::int")
        self.own("CREATE TABLE t (id int); CREATE TABLE seen (what text)")
        self.plant("NULL")
        self.own("CREATE TRIGGER trap BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION trap()")

    def drop(self) -> None:
        self.admin.execute(f"DROP OWNED BY {self.name}; DROP ROLE {self.name}".encode())

    def plant(self, body: str) -> None:
        """Make the trigger run ``body``, PL/pgSQL that may say {admin}, {admin_name}, {owner}; then note who it is."""
        admin = self.admin.info.user
        names = {"admin": sql.Identifier(admin), "admin_name": sql.Literal(admin), "owner": sql.Identifier(self.name)}
        text = "BEGIN " + sql.SQL(body).format(**names).as_string(None) + ";\n"
        text += "INSERT INTO public.seen VALUES (current_user); RETURN NEW; END"
        function = sql.SQL("CREATE OR REPLACE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS {}")
        self.own(function.format(sql.Literal(text)).as_string(None))

    def own(self, statements: str) -> None:
        """Run them as an owner who is at psql would."""
        with self.admin.transaction():
            self.admin.execute(f"SET LOCAL ROLE {self.name}; {statements}; RESET ROLE".encode())

    @property
    def seen(self) -> list[Any]:
        """What the trigger noted."""
        return [what for (what,) in self.admin.execute("SELECT what FROM seen")]


@contextmanager
def switched(connection: Connection, owner: Owner) -> Iterator[str]:
    """What a worker does: a transaction, switched to the owner and back. Who is who is looked at before either end."""
    secret = token()
    with connection.transaction():
        begin_as(connection, owner.oid, secret)
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        yield secret
        assert who(connection) == owner.name
        end_as(connection, secret)
        assert who(connection) == connection.info.user


def token() -> str:
    return secrets.token_hex(16)


def begin_as(connection: Connection, role: int | None, secret: str | None) -> None:
    connection.execute("SELECT pipeline_kafka.begin_as(%s::oid, %s)", (role, secret))


def end_as(connection: Connection, secret: str) -> None:
    connection.execute("SELECT pipeline_kafka.end_as(%s)", (secret,))


def copy(connection: Connection) -> None:
    """Write a row of t in the way of a worker."""
    with connection.cursor().copy("COPY t FROM STDIN") as stream:
        stream.write("1\n")


def who(connection: Connection) -> Any:
    return value(connection, "SELECT current_user::text")


def value(connection: Connection, query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]

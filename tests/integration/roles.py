"""Roles of a test's own, and a table that records who wrote to it."""

from __future__ import annotations

import itertools
import os

from psycopg import sql

from tests.integration.flow import Flow

_numbers = itertools.count(1)

RECORDER = """
CREATE FUNCTION record_user() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.by := current_user;
    RETURN NEW;
END $$;
CREATE TABLE t (id int, by text);
CREATE TRIGGER record_user BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION record_user();
"""


def make_role(flow: Flow, name: str = "user", may_consume: bool = True) -> str:
    """A role of the test's own without any privilege but, if wanted, those to begin and end consumers."""
    role = f"{name} {os.getpid()} {next(_numbers)}"
    run(flow, "CREATE ROLE {} LOGIN", role)
    if may_consume:
        functions = flow.column(
            "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'pipeline_kafka'::regnamespace"
            " AND proname IN ('consume_begin', 'consume_end')"
        )
        for function in functions:
            run(flow, f"GRANT EXECUTE ON FUNCTION {function} TO {{}}", role)
    return role


def run(flow: Flow, command: str, *names: str) -> None:
    """Execute a command in which {} stands for quoted names."""
    flow.admin.execute(sql.SQL(command).format(*map(sql.Identifier, names)))

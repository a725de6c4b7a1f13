"""`pipeline-kafka status`: the status views, for people or as JSON.

In: a connection string. Out: tables on stdout.
"""

from __future__ import annotations

import json
from typing import Any

import psycopg
from psycopg.rows import dict_row
from rich.console import Console
from rich.table import Table

from .database import connect
from .errors import PipelineError, describe

_WIDE = 250  # characters, where nobody says how many there are

_VIEWS = {
    "workers": "SELECT slot, state, host, pid, partitions, last_poll, last_progress, last_error,"
    " last_error_at FROM pipeline_kafka.workers_status",
    "consumers": "SELECT topic, relation::text, state, messages, set_aside, skipped, nulls, lag, last_progress,"
    " last_error, last_error_at FROM pipeline_kafka.consumers_status",
    "replays": "SELECT id, topic, relation::text, state, messages, set_aside, remaining, rate, time_left, last_error"
    " FROM pipeline_kafka.replays_status",
}


def show(dsn: str, *, as_json: bool) -> None:
    """Print workers, consumers and replays.

    Raises psycopg.Error where the database is not there, PipelineError where the extension is not or this user may not
    look at it.
    """
    with connect(dsn, "pipeline_kafka status") as connection:
        status = _read(connection)
    if as_json:
        print(json.dumps(status, default=str, indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console.width = _WIDE
    for name, rows in status.items():
        console.print(_table(name, rows))


def _read(connection: psycopg.Connection[Any]) -> dict[str, list[dict[str, Any]]]:
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            return {name: cursor.execute(query).fetchall() for name, query in _VIEWS.items()}
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        database, remedy = connection.info.dbname, "CREATE EXTENSION pipeline_kafka CASCADE;"
        raise PipelineError(f"the extension is not in database {database}: {remedy} or --database another") from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise PipelineError(f"{describe(error)}\nGRANT pg_monitor TO {connection.info.user};") from None


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in rows[0] if rows else ["(none)"]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.strftime("%Y-%m-%d %H:%M:%S") if hasattr(value, "strftime") else str(value)

"""The limit: the server's own COPY from a CSV file of the same rows.

In: a file. Out: rows per second of one COPY.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench import sample
from bench.processes import Meter
from bench.stage import Stage
from bench.turn import TABLE, Turn, make_table


def write_file(folder: Path, rows: int) -> Path:
    """Write the sample rows where every OS user can read them."""
    path = folder / "rows.csv"
    with path.open("wb") as file:
        file.writelines(value + b"\n" for value in sample.values("csv", rows))
    path.chmod(0o644)
    return path


def run(stage: Stage, connection: psycopg.Connection[Any], file: Path) -> Turn:
    """Load the file once."""
    rows = stage.scale.rows
    make_table(connection)
    copy = sql.SQL("COPY {} FROM {} WITH (FORMAT csv)").format(sql.Identifier(TABLE), str(file))
    meter, begun = Meter(server=[connection.info.backend_pid]), time.monotonic()
    connection.execute(copy)
    seconds = time.monotonic() - begun
    return Turn(rows / seconds, sample.check(connection, TABLE, rows), meter.used_each(rows))

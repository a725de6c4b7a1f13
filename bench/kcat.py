"""What one would do by hand: kcat piped into psql's COPY.

In: a topic. Out: rows per second from the start of the pipe to the last commit, both programs' starts included.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from typing import Any

import psycopg

from bench import sample
from bench.stage import Stage
from bench.turn import TABLE, Turn, make_table
from tests.testbed.postgres import bindir
from tests.testbed.process import plain_environment

# With these two bytes, which JSON never holds, as quote and delimiter, COPY takes a line as it is.
_COPY = {
    "text": f"COPY {TABLE} FROM STDIN",
    "json": r"COPY documents FROM STDIN WITH (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')",
}
_UNPACK = f"""
INSERT INTO {TABLE} SELECT (doc->>'id')::bigint, doc->>'name', (doc->>'at')::timestamptz, (doc->>'amount')::numeric,
                           (doc->>'ok')::boolean FROM documents
"""
FORMATS = {"kcat-json": "json", "kcat-text": "text"}


def run(stage: Stage, connection: psycopg.Connection[Any], form: str) -> Turn:
    """Load the topic that is named as its format; JSON by way of a jsonb column. Raises RuntimeError on failure."""
    rows = stage.scale.rows
    connection.execute("DROP TABLE IF EXISTS documents; CREATE TABLE documents (doc jsonb)")
    make_table(connection)
    begun = time.monotonic()
    _pipe(stage.cluster.dsn(connection.info.dbname), stage.broker.bootstrap, form)
    piped = time.monotonic() - begun
    if form == "json":
        connection.execute(_UNPACK)
    seconds = time.monotonic() - begun
    return Turn(rows / seconds, sample.check(connection, TABLE, rows), {"piped_s": piped})


def _pipe(dsn: str, bootstrap: str, topic: str) -> None:
    read = ["kcat", "-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-o", "beginning"]
    write = [str(bindir() / "psql"), "-X", "-q", "-d", dsn, "-c", _COPY[topic]]
    command = f"set -o pipefail; {shlex.join(read)} | {shlex.join(write)}"
    done = subprocess.run(["bash", "-c", command], env=plain_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command} exited with {done.returncode}: {done.stderr}")

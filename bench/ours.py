"""This extension: the sample rows from a topic, with one worker or two that are running when the consumer is begun.

In: a database whose workers are warm. Out: rows per second between the first and the last commit.
"""

from __future__ import annotations

from typing import Any

import psycopg

from bench import consuming, sample
from bench.processes import Meter
from bench.stage import Stage
from bench.turn import TABLE, Turn, make_table

WORKERS = (1, 2)
DELIMITERS = {"text": "\t", "csv": ",", "json": "\t"}
NAMES = tuple(f"{form}-{workers}" for workers in WORKERS for form in DELIMITERS)


def run(stage: Stage, connection: psycopg.Connection[Any], form: str, workers: int) -> Turn:
    """Consume the topic that is named as its format."""
    rows = stage.scale.rows
    make_table(connection)
    meter = Meter(
        worker=consuming.worker_pids(connection), server=consuming.backend_pids(connection), broker=[stage.broker_pid]
    )
    begun = consuming.now(connection)
    consuming.begin(connection, form, TABLE, format=form, delimiter=DELIMITERS[form], parallelism=workers)
    consuming.wait_passed(connection, [TABLE], rows)
    used = meter.used_each(rows)
    consuming.end(connection, form, TABLE)
    pace = consuming.pace(connection, [TABLE], begun)
    return Turn(
        pace.rate,
        sample.check(connection, TABLE, rows),
        {"whole": pace.whole, "lead_s": pace.lead, "commits": pace.commits} | used,
    )

"""One topic into four tables: read once for all of them, beside four consumer groups that each read it.

In: the stage. Out: rows per second of all four tables together, by two workers.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import median

from bench import consuming, sample
from bench.filling import fill
from bench.result import Result
from bench.stage import PARTITIONS, Stage
from bench.turn import Turn

NAMES = ("fan-out",)
TABLES = [f"copy_{number}" for number in range(4)]
TOPIC = "fan-out"
TOGETHER = "all"
APART = [f"only-{table}" for table in TABLES]
WORKERS = 2
ROUNDS = 3


def measure(stage: Stage, names: Collection[str]) -> list[Result]:
    """Let one group for all tables and a group for each take turns."""
    rows = stage.scale.rows
    fill(stage.broker, TOPIC, PARTITIONS, sample.values("json", rows))
    with stage.database("fan_out") as database, database.connect() as connection:
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} ({sample.COLUMNS})")
        consuming.warm_up(connection, stage.broker, WORKERS, [TOGETHER, *APART])
        turns = [(_turn(connection, rows, [TOGETHER] * 4), _turn(connection, rows, APART)) for _ in range(ROUNDS)]
    return [_result(turns)]


def _turn(connection: consuming.Connection, rows: int, groups: list[str]) -> Turn:
    connection.execute(f"TRUNCATE {', '.join(TABLES)}")
    connection.execute("CHECKPOINT")
    begun = consuming.now(connection)
    with connection.transaction():
        for table, group in zip(TABLES, groups, strict=True):
            consuming.begin(connection, TOPIC, table, format="json", group_id=group)
    consuming.wait_passed(connection, TABLES, rows * len(TABLES))
    with connection.transaction():
        for table in TABLES:
            consuming.end(connection, TOPIC, table)
    pace = consuming.pace(connection, TABLES, begun)
    wrong = [found for table in TABLES if (found := sample.check(connection, table, rows))]
    return Turn(pace.rate, "; ".join(wrong) or None, {"whole": pace.whole})


def _result(turns: list[tuple[Turn, Turn]]) -> Result:
    return Result(
        "fan-out",
        median(together.rate for together, _ in turns),
        "rows/s",
        ratio=median(together.rate / apart.rate for together, apart in turns),
        reference="four groups",
        wrong=next((turn.wrong for pair in turns for turn in pair if turn.wrong), None),
        details={
            "four_groups": [apart.rate for _, apart in turns],
            "whole": [together.details["whole"] for together, _ in turns],
            "four_groups_whole": [apart.details["whole"] for _, apart in turns],
        },
    )

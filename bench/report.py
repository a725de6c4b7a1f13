"""What was measured, on what: a table for people and JSON for the rest.

In: results. Out: text on stdout, a file.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
from rich.console import Console
from rich.table import Table

from bench.result import Result
from bench.stage import Stage
from tests.testbed.jars import KAFKA_VERSION

WIDTH = 140  # columns of the table where there is no terminal
LEGEND = """\
name-N: N workers, running before; rows/s from the first commit to the last (the server's commit timestamps), the rows
of the first left out. limit: COPY FROM a CSV file on the server, before and after each of them; ratios are medians.
kcat-*: from the start of the pipe to the last commit."""


def surroundings(stage: Stage) -> dict[str, Any]:
    """Return what the numbers depend on: machine, versions, settings, and how busy others keep the machine."""
    with stage.cluster.connect() as connection:
        row = connection.execute("SELECT current_setting('server_version')").fetchone()
    assert row is not None
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_before": round(os.getloadavg()[0], 1),
        "postgresql": row[0],
        "kafka": KAFKA_VERSION,
        "librdkafka": confluent_kafka.libversion()[0],
        "python": platform.python_version(),
        "rows": stage.scale.rows,
        "compression": "none",
        "server_settings": stage.cluster.settings,
    }


def write(path: Path, about: dict[str, Any], results: Sequence[Result]) -> None:
    """Write all numbers as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = about | {"results": [result.as_json() for result in results]}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False, default=float) + "\n")


def show(about: dict[str, Any], results: Sequence[Result]) -> None:
    """Print the table."""
    keys = ("rows", "cores", "postgresql", "kafka", "librdkafka", "load_before", "date")
    print(", ".join(f"{key} {about[key]}" for key in keys))
    table = Table()
    for name in ("name", "value", "unit", "ratio", "to", "target", "met", "note"):
        table.add_column(name, justify="right" if name in ("value", "ratio") else "left")
    for result in results:
        table.add_row(*_cells(result))
    Console(width=max(WIDTH, Console().width)).print(table)
    print(LEGEND)
    for result in results:
        if result.wrong:
            print(f"{result.name}: {result.wrong}")


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result.name,
        number(result.value),
        result.unit,
        f"{result.ratio:.2f}" if result.ratio is not None else "",
        result.reference or "",
        str(result.target or ""),
        "WRONG" if result.wrong else {True: "yes", False: "no", None: ""}[result.met],
        result.note,
    )


def number(value: float | None) -> str:
    """Return a number with the digits that mean something."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

"""`python -m bench`: measure, print the table of ratios, and write the numbers as JSON beside it."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bench import fan_out, idle, kill, latency, many, memory, rates, report, storm
from bench.result import Result
from bench.stage import FULL, Scale, Stage
from tests.testbed.folders import new_folder, remove_folder

Measure = Callable[[Stage, Collection[str]], list[Result]]
GROUPS: Sequence[tuple[Sequence[str], Measure]] = (
    (rates.NAMES, rates.measure),
    (latency.NAMES, latency.measure),
    (idle.NAMES, idle.measure),
    (memory.NAMES, memory.measure),
    (kill.NAMES, kill.measure),
    (fan_out.NAMES, fan_out.measure),
    (storm.NAMES, storm.measure),
    (many.NAMES, many.measure),
)
NAMES = [name for names, _ in GROUPS for name in names]
OPTIONAL = many.NAMES  # only when asked for by name: it takes long


def main() -> int:
    """Measure what is asked for. The exit code is 1 where data were wrong or something could not be measured."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that all is cleaned up
    folder = new_folder("pk-bench")
    try:
        with Stage(folder, Scale(arguments.rows)) as stage:
            about = report.surroundings(stage)
            results = _results(stage, _chosen(arguments.only))
    finally:
        remove_folder(folder)
    report.write(arguments.json, about, results)
    report.show(about, results)
    print(f"all numbers: {arguments.json}")
    return 1 if any(result.wrong for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=FULL, help="messages a turn; all else shrinks with it (%(default)s)"
    )
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).with_name("results.json"), help="file (%(default)s)"
    )
    parser.add_argument(
        "--only",
        type=lambda names: names.split(","),
        help=f"names, or patterns such as 'json-*', with commas between. All but {', '.join(OPTIONAL)} are the default;"
        f" there are {', '.join(NAMES)}",
    )
    return parser


def _chosen(patterns: Sequence[str] | None) -> list[str]:
    if patterns is None:
        return [name for name in NAMES if name not in OPTIONAL]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in NAMES):
            sys.exit(f"nothing is called {pattern}: there are {', '.join(NAMES)}")
    return [name for name in NAMES if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _results(stage: Stage, chosen: Collection[str]) -> list[Result]:
    results = []
    for names, measure in GROUPS:
        wanted = [name for name in names if name in chosen]
        if wanted:
            begun = time.monotonic()
            results += _measured(stage, measure, wanted)
            print(f"{', '.join(wanted)}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return results


def _measured(stage: Stage, measure: Measure, names: Sequence[str]) -> list[Result]:
    """Measure a group; what keeps it from being measured is shown in its rows, and the others are measured still."""
    try:
        return measure(stage, names)
    except Exception as error:
        traceback.print_exc()
        return [Result(name, None, "", wrong=f"not measured: {error}") for name in names]


if __name__ == "__main__":
    sys.exit(main())

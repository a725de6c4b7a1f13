"""Rows per second of each contender, beside the limit: what the server's own COPY makes of the same rows.

In: the stage, and the names wanted. Out: a Result a name, the median of rounds in which the contenders take turns.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from statistics import median

from bench import consuming, kcat, limit, ours, sample
from bench.filling import fill
from bench.result import Result
from bench.stage import PARTITIONS, Stage
from bench.turn import Contender, Turn

LIMIT = "limit"
NAMES = (LIMIT, *kcat.FORMATS, *ours.NAMES)
ROUNDS = 3


def measure(stage: Stage, names: Collection[str]) -> list[Result]:
    """Measure the named contenders, and the limit in any case."""
    for form in sample.FORMATS:
        if any(form in name for name in names):
            fill(stage.broker, form, PARTITIONS, sample.values(form, stage.scale.rows))
    with ExitStack() as stack:
        limiting = partial(
            limit.run, stage, _connect(stage, stack, "limit"), limit.write_file(stage.folder, stage.scale.rows)
        )
        turns = _take_turns(limiting, _contenders(stage, stack, names))
    return [*(_result(name, taken) for name, taken in turns.items()), *_scaling(turns)]


def _take_turns(limiting: Contender, contenders: dict[str, Contender]) -> dict[str, list[Turn]]:
    """Have each contender between two turns of the limit, ROUNDS times: what slows the machine down slows both."""
    limits = [limiting()]
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, contend in contenders.items():
            turn = contend()
            limits.append(limiting())
            turns[name].append(replace(turn, limit=(limits[-2].rate + limits[-1].rate) / 2))
    return {LIMIT: limits, **turns}


def _contenders(stage: Stage, stack: ExitStack, names: Collection[str]) -> dict[str, Contender]:
    contenders: dict[str, Contender] = {}
    by_hand = {name: form for name, form in kcat.FORMATS.items() if name in names}
    if by_hand:
        connection = _connect(stage, stack, "by_hand")
        contenders |= {name: partial(kcat.run, stage, connection, form) for name, form in by_hand.items()}
    for workers in ours.WORKERS:
        mine = {f"{form}-{workers}": form for form in ours.DELIMITERS if f"{form}-{workers}" in names}
        if mine:
            connection = _connect(stage, stack, f"workers_{workers}")
            consuming.warm_up(connection, stage.broker, workers)
            contenders |= {name: partial(ours.run, stage, connection, form, workers) for name, form in mine.items()}
    return contenders


def _connect(stage: Stage, stack: ExitStack, name: str) -> consuming.Connection:
    return stack.enter_context(stack.enter_context(stage.database(name)).connect())


def _result(name: str, turns: list[Turn]) -> Result:
    details = {key: median(turn.details[key] for turn in turns) for key in turns[0].details}
    return Result(
        name,
        median(turn.rate for turn in turns),
        "rows/s",
        ratio=None if name == LIMIT else median(turn.ratio for turn in turns),
        reference=None if name == LIMIT else LIMIT,
        wrong=next((turn.wrong for turn in turns if turn.wrong), None),
        note=_note(details),
        details={"rates": [turn.rate for turn in turns], "limits": [turn.limit for turn in turns]} | details,
    )


def _note(details: dict[str, float]) -> str:
    whole = [f"{details['whole']:,.0f} from consume_begin()"] if "whole" in details else []
    cpu = [f"{who} {details[key]:.1f}" for who in ("worker", "server", "broker") if (key := f"{who}_cpu_us") in details]
    return "; ".join([*whole, *([f"CPU us: {', '.join(cpu)}"] if cpu else [])])


def _scaling(turns: dict[str, list[Turn]]) -> list[Result]:
    """What the second worker brings, each measured by the limit beside it."""
    results = []
    for form in ours.DELIMITERS:
        one, two = turns.get(f"{form}-1"), turns.get(f"{form}-2")
        if one and two:
            gain = median(of_two.ratio / of_one.ratio for of_one, of_two in zip(one, two, strict=True))
            rate = median(turn.rate for turn in two)
            results.append(Result(f"{form}-2/1", rate, "rows/s", ratio=gain, reference=f"{form}-1"))
    return results

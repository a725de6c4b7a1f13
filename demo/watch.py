"""Counting what has arrived, while it arrives.

In: a connection, the orders that are being sent. Out: a table that lives on a terminal, or a line a second.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import chain
from typing import Any

import psycopg
from rich.console import Console
from rich.live import Live
from rich.table import Table

from .orders import Orders

# The delay is from Kafka's timestamp, which the producer gave the message, to the row, over the last second.
COUNT = """
SELECT count(*) AS rows,
       (SELECT count(*) FROM pipeline_kafka.dead_letters) AS set_aside,
       1000 * extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY loaded_at - kafka_timestamp)
                                 FILTER (WHERE loaded_at > clock_timestamp() - interval '1 second')) AS delay
FROM orders
"""
TITLES = ("second", "sent to Kafka", "rows in orders", "rows/s", "lag", "median delay", "set aside")
SHOWN = 10  # lines on a terminal
REFRESH = 0.2  # seconds


@dataclass(frozen=True, slots=True)
class Sample:
    """What stands where, ``second`` seconds after the start. ``lag`` is sent and neither a row nor set aside."""

    second: int
    sent: int
    rows: int
    rate: float
    lag: int
    delay: float | None  # milliseconds
    set_aside: int

    def cells(self) -> list[str]:
        """The sample for people, in the order of TITLES."""
        *numbers, delay, set_aside = astuple(self)
        return [*(f"{number:,.0f}" for number in numbers), "" if delay is None else f"{delay:.0f} ms", str(set_aside)]


class Watch:
    """Takes samples; the rate of each is since the last whole second."""

    def __init__(self, connection: psycopg.Connection[Any], orders: Orders) -> None:
        self._connection = connection
        self._orders = orders
        self._begun = self._since = time.monotonic()
        self._rows = 0

    def show(self, console: Console, seconds: int) -> None:
        """Show ``seconds`` seconds of counting: a table that moves, or lines where there is no terminal."""
        if console.is_terminal:
            _show_table(console, self._samples(seconds))
        else:
            _show_lines(console, self._samples(seconds))

    def all_arrived(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until every order that was sent is a row or set aside; tell whether it is."""
        until = time.monotonic() + timeout
        while (now := self._count()).rows + now.set_aside < now.sent and time.monotonic() < until:
            time.sleep(REFRESH)
        return now.rows + now.set_aside == now.sent

    def _samples(self, seconds: int) -> Iterator[tuple[Sample, bool]]:
        """Yield what stands where every REFRESH seconds, and whether a second is full."""
        for second in range(1, seconds + 1):
            while (left := self._begun + second - time.monotonic()) > 0:
                yield self._count(), False
                time.sleep(min(REFRESH, left))
            full = self._count()
            self._since, self._rows = time.monotonic(), full.rows
            yield full, True

    def _count(self) -> Sample:
        sent = self._orders.sent
        counted = self._connection.execute(COUNT).fetchone()
        assert counted is not None
        rows, set_aside, delay = counted
        now = time.monotonic()
        rate = (rows - self._rows) / max(now - self._since, REFRESH)
        return Sample(round(now - self._begun), sent, rows, rate, max(sent - rows - set_aside, 0), delay, set_aside)


def _show_table(console: Console, samples: Iterator[tuple[Sample, bool]]) -> None:
    lines: deque[Sample] = deque(maxlen=SHOWN)
    with Live(console=console, auto_refresh=False) as live:
        for sample, full in samples:
            live.update(_table([*lines, sample]), refresh=True)
            if full:
                lines.append(sample)


def _table(samples: list[Sample]) -> Table:
    table = Table(*TITLES, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in table.columns:
        column.justify = "right"
    for sample in samples:
        table.add_row(*sample.cells(), style="bold" if sample is samples[-1] else "dim")
    return table


def _show_lines(console: Console, samples: Iterator[tuple[Sample, bool]]) -> None:
    lines = chain([TITLES], (sample.cells() for sample, full in samples if full))
    for line in lines:
        console.print("  ".join(f"{cell:>14}" for cell in line), soft_wrap=True, highlight=False)

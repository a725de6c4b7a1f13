"""The five-column rows that everything is measured with.

In: how many. Out: the same rows as json, text and csv, and what a table that holds each once adds up to.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

COLUMNS = "id bigint, name text, at timestamptz, amount numeric, ok boolean"
FORMATS = {
    "json": '{"id":%d,"name":"%s","at":"%s","amount":%s,"ok":%s}',
    "text": "%d\t%s\t%s\t%s\t%s",
    "csv": '%d,"%s",%s,%s,%s',
}
_TOTALS = sql.SQL("SELECT count(*), coalesce(sum(id), 0), coalesce(sum(amount), 0), count(*) FILTER (WHERE ok) FROM {}")


class Totals(NamedTuple):
    """What tells a table with every row once from one without: a row lost and one doubled do not cancel out."""

    rows: int
    ids: Decimal
    amounts: Decimal
    true: int


def values(format: str, count: int) -> Iterator[bytes]:
    """Yield ``count`` rows in a format, without a line feed."""
    template = FORMATS[format]
    for number in range(count):
        cents = _cents(number)
        amount = f"{cents // 100}.{cents % 100:02}"
        ok = "true" if number % 3 == 0 else "false"
        yield (template % (number, f"customer {number % 9973}", _time(number), amount, ok)).encode()


@cache
def totals(count: int) -> Totals:
    """Return what ``count`` rows add up to."""
    cents = sum(map(_cents, range(count)))
    return Totals(count, Decimal(count * (count - 1) // 2), Decimal(cents) / 100, (count + 2) // 3)


def check(connection: psycopg.Connection[Any], relation: str, count: int) -> str | None:
    """Return None where a relation holds each of ``count`` rows exactly once, else what it holds instead."""
    found = connection.execute(_TOTALS.format(sql.Identifier(relation))).fetchone()
    assert found is not None
    expected = totals(count)
    return None if Totals(*found) == expected else f"{relation} holds {Totals(*found)}, not {expected}"


def _cents(number: int) -> int:
    return number * 7919 % 1_000_000


def _time(number: int) -> str:
    """A row a millisecond."""
    seconds, milliseconds = divmod(number, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"2026-01-{1 + hours // 24:02}T{hours % 24:02}:{minutes:02}:{seconds:02}.{milliseconds:03}Z"

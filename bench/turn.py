"""One contender's turn at loading the sample rows, and the table that it loads.

In: a connection to the contender's database. Out: Turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from bench import sample

TABLE = "landed"


@dataclass(frozen=True, slots=True)
class Turn:
    """How it went: rows/s, what was wrong with the data if anything was, further numbers by name.

    ``limit`` is what the limit's turns just before and after it made, in rows/s.
    """

    rate: float
    wrong: str | None
    details: dict[str, float] = field(default_factory=dict)
    limit: float = 0.0

    @property
    def ratio(self) -> float:
        """The part of the limit that it came to."""
        return self.rate / self.limit


Contender = Callable[[], Turn]


def make_table(connection: psycopg.Connection[Any]) -> None:
    """Make the table anew and have what was written before on disk, so that each turn starts from the same state."""
    connection.execute(f"DROP TABLE IF EXISTS {TABLE}; CREATE TABLE {TABLE} ({sample.COLUMNS})")
    connection.execute("CHECKPOINT")

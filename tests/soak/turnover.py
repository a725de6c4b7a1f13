"""Consumers that come and go.

In: a site, topics of numbered rows. Out: each turn() ends one consumer and begins another, in all ways there are.
"""

from __future__ import annotations

from typing import Any

from tests.crash.site import COLUMNS, Site

LIVES = 4  # turns until a consumer is ended
TABLES = 12  # they are used again and again
NEW_TABLE = 5  # each so many turns a table is dropped and made again, and so is another relation
OTHER_TOPIC = 3  # each so many turns the topic is another one, and with it the subscription

# What a table holds, and how it is filled.
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    (COLUMNS, {"format": "json"}),
    ("doc jsonb, kafka_partition int, kafka_offset bigint", {"format": "json"}),
    ("doc text, kafka_key text", {"format": "raw"}),
    (f"{COLUMNS}, more text DEFAULT 'x', made timestamptz DEFAULT now()", {"format": "json"}),
)
STARTS = (-1, None, -1)  # the end, where it was, the end


class Turnover:
    """``topics`` are read in turn."""

    def __init__(self, site: Site, topics: list[str]) -> None:
        self._site = site
        self._topics = topics
        self._alive: list[tuple[str, str]] = []
        self.turns = 0
        for number in range(TABLES):
            self._make(number)

    def turn(self) -> None:
        """End the oldest consumer and begin another."""
        turn, self.turns = self.turns, self.turns + 1
        if len(self._alive) >= LIVES:
            self._site.end(*self._alive.pop(0))
        number = turn % TABLES
        if turn >= TABLES and turn % NEW_TABLE == 0:
            self._site.admin.execute(f"DROP TABLE {_name(number)}")
            self._make(number)
        topic = self._topics[turn // OTHER_TOPIC % len(self._topics)]
        settings = KINDS[number % len(KINDS)][1]
        self._site.begin(topic, _name(number), start_offset=STARTS[turn % len(STARTS)], **settings)
        self._alive.append((topic, _name(number)))

    def end(self) -> None:
        """End those that are left."""
        while self._alive:
            self._site.end(*self._alive.pop())

    def _make(self, number: int) -> None:
        self._site.admin.execute(f"CREATE TABLE {_name(number)} ({KINDS[number % len(KINDS)][0]})")


def _name(number: int) -> str:
    return f"turn_{number}"

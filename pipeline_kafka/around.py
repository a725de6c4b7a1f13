"""Loading around bad messages.

In: a payload that failed as a whole. Out: rows of all messages that the relation takes, and those that it does not.

While few are bad, ranges are tried: after a failure those messages before the line that COPY names, else half as many;
after a success twice as many. While many are bad, each message is tried by itself, several in a round trip.
"""

from __future__ import annotations

from typing import Any

import psycopg

from .decoders.payload import Refused
from .errors import Rules
from .limit import Limit
from .owner import as_owner
from .recorder import Recorder, Unrecordable
from .tries import Statement, Tries
from .why import Bad, Why, of_error, reads_parameter
from .work import Work

FIRST, MOST = 16, 64  # messages that are tried in a round trip: each may wait for a lock, so more only in a long storm
STORM = 2  # bad ones among them that make it worth going on so


class Around:
    """Loads one consumer's part of a batch around its bad messages. ``bad`` are those found so far, in order."""

    def __init__(self, cursor: psycopg.Cursor[Any], tries: Tries, work: Work, rules: Rules, limit: Limit) -> None:
        self.bad: list[Bad] = []
        self._run = FIRST
        self._cursor = cursor
        self._tries = tries
        self._work = work
        self._payload = work.decoded.payload
        self._rules = rules
        self._limit = limit
        self._recorder = Recorder(work.relation)
        self._names = frozenset(column.name for column in work.relation.columns)

    def load(self, error: psycopg.Error) -> None:
        """Load what can be loaded of a payload that failed with ``error``, up to the limit.

        Raises psycopg.Error where no message is at fault.
        """
        start, end = 0, self._limit.end()
        size = self._before(error, start, end) or 1
        with as_owner(self._cursor, self._work.consumer):
            while start < end:
                self._cursor.execute("SAVEPOINT range")
                if size > 1:
                    start, size = self._try_range(start, min(start + size, end))
                else:
                    start, size = self._try_each(start, min(start + self._run, end))
                    self._run = min(2 * self._run, MOST)
                self._cursor.execute("RELEASE SAVEPOINT range")
                end = self._limit.end(start, len(self.bad))

    def _try_range(self, start: int, stop: int) -> tuple[int, int]:
        """Try messages as a whole; return where to go on, and with how many."""
        error = self._load(start, stop)
        if error is None:
            return stop, 2 * (stop - start)
        if stop - start == 1:
            self.bad.append(Bad(self._payload.messages[start], of_error(error, self._names)))
            return stop, 1
        return start, self._before(error, start, stop) or max(1, (stop - start) // 2)

    def _load(self, start: int, stop: int) -> psycopg.Error | None:
        try:
            self._payload.load(self._cursor, start, stop)
            self._cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if not self._cursor.connection.broken:
                self._cursor.execute("ROLLBACK TO SAVEPOINT range")
            self._raise_unless_bad(error, start, stop)
            return error
        return None

    def _try_each(self, start: int, stop: int) -> tuple[int, int]:
        """Try messages by themselves, up to the last one that may be passed; return as _try_range()."""
        try:
            whys = self._whys(start, stop)
        except Unrecordable:
            return self._try_range(start, start + 1)
        bad = []
        for place, why in enumerate(whys, start):
            if why is not None:
                bad.append(Bad(self._payload.messages[place], why))
                end = self._limit.end(place + 1, len(self.bad) + len(bad))
                if end < stop:
                    self._cursor.execute("ROLLBACK TO SAVEPOINT range")
                    return self._try_each(start, end)
        self.bad += bad
        return stop, 1 if len(bad) >= STORM else stop - start + 1

    def _whys(self, start: int, stop: int) -> list[Why | None]:
        """Try messages by themselves; return why each was refused, None where it is loaded."""
        recorded = [self._record(index) for index in range(start, stop)]
        errors = iter(self._tries.each([made for made in recorded if not isinstance(made, Why)]))
        return [
            made if isinstance(made, Why) else self._why(next(errors), made, index)
            for index, made in enumerate(recorded, start)
        ]

    def _record(self, index: int) -> list[Statement] | Why:
        try:
            return self._recorder.record(self._payload, index)
        except Refused as refused:
            return Why(refused.sqlstate, str(refused))

    def _why(self, error: psycopg.Error | None, statements: list[Statement], index: int) -> Why | None:
        if error is None:
            return None
        self._raise_unless_bad(error, index, index + 1)
        return of_error(error, self._names, statements[-1].columns)

    def _raise_unless_bad(self, error: psycopg.Error, start: int, stop: int) -> None:
        """Go on where messages of [start, stop), which are undone, are at fault."""

        def is_unreadable() -> bool:
            return reads_parameter(error) or self._payload.unreadable(self._cursor, error, start, stop)

        if self._cursor.connection.broken or not self._rules.blames_message(error, is_unreadable):
            raise error

    def _before(self, error: psycopg.Error, start: int, stop: int) -> int:
        """Return how many messages of [start, stop) come before the one that an error names, but 1 at least.

        0 where it names none.
        """
        bad = self._payload.locate(error, start)
        return max(1, bad - start) if bad is not None and start <= bad < stop else 0

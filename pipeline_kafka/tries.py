"""Many tries in one round trip, each of which may fail: what makes a storm of bad messages affordable.

In: for each message the statements that write it. Out: its rows or, where it was refused, the error.

psycopg's pipeline mode gives up behind the first error, so libpq is spoken to itself. Each message is followed by a
SAVEPOINT, which is passed over where the message has failed, and then by a rollback to the last one there is: a
message that failed is undone, and one that did not is let stand, without anybody having to know which it was.
"""

from __future__ import annotations

import select
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, cast

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

_KEEP, _UNDO, _CHECK = b"SAVEPOINT try", b"ROLLBACK TO SAVEPOINT try", b"SET CONSTRAINTS ALL IMMEDIATE"
_MOST_PREPARED = 100  # statements a connection keeps, or as many as are tried at once


class Statement(NamedTuple):
    """A statement with $1, $2, … for its parameters, and their text form; None is NULL.

    ``columns`` are those that the parameters are for, row by row, where each is for one.
    """

    text: bytes
    values: list[bytes | None]
    columns: tuple[str, ...] = ()


class Tries:
    """Tries messages on one connection, which is in a transaction. Statements are prepared once for many tries."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._pg: PGconn = connection.pgconn
        self._names: dict[bytes, bytes] = {}
        self._count = 0

    def each(self, messages: Sequence[Sequence[Statement]]) -> list[psycopg.Error | None]:
        """Write each message by itself; return what the server said of it, None where it is written.

        Deferred constraints are checked with each. Raises psycopg.Error where a statement cannot be prepared at all,
        or the connection broke.
        """
        self._prepare(dict.fromkeys([_KEEP, _UNDO, _CHECK, *(s.text for message in messages for s in message)]))
        self._pg.enter_pipeline_mode()
        try:
            errors = self._errors(messages)
        except BaseException:
            self._pg.finish()  # answers may be on their way that nobody would know from those to the next question
            raise
        self._pg.exit_pipeline_mode()
        return errors

    def _errors(self, messages: Sequence[Sequence[Statement]]) -> list[psycopg.Error | None]:
        self._send(Statement(_KEEP, []))
        for message in messages:
            for statement in (*message, Statement(_CHECK, []), Statement(_KEEP, [])):
                self._send(statement)
            self._pg.pipeline_sync()
            self._send(Statement(_UNDO, []))
        self._pg.pipeline_sync()
        self._flush()
        self._result()
        errors = [self._outcome(len(message) + 2) for message in messages]
        self._result(ExecStatus.PIPELINE_SYNC)
        return errors

    def _prepare(self, texts: Collection[bytes]) -> None:
        """Prepare what is not prepared yet; where that would be too many, those before make room."""
        self._forget_what_is_gone()
        if len(self._names.keys() | texts) > _MOST_PREPARED and self._names:
            self._pg.exec_(b"; ".join(b"DEALLOCATE " + name for name in self._names.values()))
            self._names.clear()
        for text in texts:
            if text not in self._names:
                self._names[text] = self._prepared(text)

    def _forget_what_is_gone(self) -> None:
        """psycopg, for one, deallocates all prepared statements of its connection after a rollback."""
        result = self._pg.exec_(b"SELECT name FROM pg_catalog.pg_prepared_statements WHERE name ^@ 'try_'")
        there = {result.get_value(row, 0) for row in range(result.ntuples)}
        self._names = {text: name for text, name in self._names.items() if name in there}

    def _prepared(self, text: bytes) -> bytes:
        self._count += 1
        name = b"try_%d" % self._count
        result = self._pg.prepare(name, text)
        if result.status != ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)
        return name

    def _send(self, statement: Statement) -> None:
        values = cast("list[bytes]", statement.values)  # None is NULL, whatever the stubs say
        self._pg.send_query_prepared(self._names[statement.text], values)

    def _outcome(self, statements: int) -> psycopg.Error | None:
        """Take in the results of one message's statements, the end of its part, and the rollback."""
        results = [self._result() for _ in range(statements)]
        self._result(ExecStatus.PIPELINE_SYNC)
        self._result()
        failed = next((result for result in results if result.status == ExecStatus.FATAL_ERROR), None)
        return None if failed is None else psycopg.errors.error_from_result(failed)

    def _result(self, status: ExecStatus | None = None) -> PGresult:
        """Return the next result: of a statement, whose end is taken in too, or of a sync."""
        result = self._next()
        if result is None or (status is not None and result.status != status):
            raise psycopg.OperationalError("the connection to the server was lost")
        if status is None and self._next() is not None:
            raise psycopg.OperationalError("the server answered out of turn")
        return result

    def _next(self) -> PGresult | None:
        while self._pg.is_busy():
            self._wait(select.POLLIN)
            self._pg.consume_input()
        return self._pg.get_result()

    def _flush(self) -> None:
        """Send what is queued, and read what comes meanwhile: a server that nobody reads from stops reading too."""
        while self._pg.flush():
            if self._wait(select.POLLIN | select.POLLOUT) & ~select.POLLOUT:
                self._pg.consume_input()

    def _wait(self, events: int) -> int:
        """Wait, while other threads go on, for the connection to be ready; return for what."""
        poll = select.poll()
        poll.register(self._pg.socket, events)
        return poll.poll()[0][1]

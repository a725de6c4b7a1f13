"""COPY data on its way to the server, which may be talking meanwhile.

In: pieces of COPY data. Out: bytes sent, with neither side waiting for the other to listen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import Buffer, Params, PQGen, Query
from psycopg.copy import Copy, LibpqWriter, Writer
from psycopg.pq.abc import PGconn
from psycopg.waiting import Ready, Wait

_PIECE = 1 << 17  # bytes given to libpq at a time


class ListeningCursor(psycopg.Cursor[Any]):
    """A cursor whose copy() cannot deadlock, as psycopg's own can: while that waits to write it reads nothing.

    A server that has more to say than a socket holds (a notice for each row, an error that quotes a value of half a
    megabyte) waits to be read before it reads on. libpq's documentation of PQflush() says to wait for both.
    """

    @contextmanager
    def copy(self, statement: Query, params: Params | None = None, *, writer: Writer | None = None) -> Iterator[Copy]:
        """As psycopg's; see there."""
        with super().copy(statement, params, writer=writer or _ListeningWriter(self)) as copy:
            yield copy


class _ListeningWriter(LibpqWriter):
    def write(self, data: Buffer) -> None:
        whole = memoryview(data)
        for start in range(0, len(whole), _PIECE):
            self.connection.wait(_send(self._pgconn, whole[start : start + _PIECE]))

    def finish(self, exc: BaseException | None = None) -> None:
        """End the data: a few bytes, which go at once where anything can be written."""
        self.connection.wait(_writable(self._pgconn))
        super().finish(exc)


def _send(pgconn: PGconn, data: Buffer) -> PQGen[None]:
    yield from _until(pgconn, lambda: pgconn.put_copy_data(data) != 0)
    yield from _until(pgconn, lambda: pgconn.flush() == 0)


def _until(pgconn: PGconn, done: Callable[[], bool]) -> PQGen[None]:
    while not done():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()


def _writable(pgconn: PGconn) -> PQGen[None]:
    ready: Ready | int = 0
    while not ready & Ready.W:
        ready = yield Wait.RW
        if ready & Ready.R:
            pgconn.consume_input()

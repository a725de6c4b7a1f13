"""The PostgreSQL side: one transaction a batch, one savepoint a consumer.

In: a batch's work, decoded. Out: rows, dead letters and offsets, committed together; an outcome for each consumer.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from . import consumer_state, dead_letters, offsets
from .database import SEARCH_PATH
from .decoders.payload import Decoded, Payload, Reject
from .errors import Kind, Redefined, describe, kind_of_error
from .log import logger
from .model import Consumer, Relation, TopicPartition
from .offsets import Move


@dataclass(slots=True)
class Work:
    """One consumer's part of a batch: messages decoded for its relation, and the offsets they move."""

    consumer: Consumer
    relation: Relation
    decoded: Decoded
    moves: dict[TopicPartition, Move]
    failures: int = 0  # in a row, before this batch


@dataclass(frozen=True, slots=True)
class Failure:
    """A consumer's part of a batch was not loaded. Try again in ``retry_in`` seconds; None: it was stopped."""

    retry_in: float | None
    counts: bool = True  # as one more failure in a row
    slow: bool = False  # it took longer than others should wait


_SLOW = ("57014", "55P03")  # statement_timeout, lock_timeout
Outcomes = dict[int, Failure | None]  # consumer's id -> None where its part was loaded


class Stop(Exception):
    """A bad message, for a consumer whose on_error is 'stop'."""

    def __init__(self, reject: Reject) -> None:
        message, self.sqlstate, error = reject
        super().__init__(f"{message.topic()}[{message.partition()}] offset {message.offset()}: {error}")


class Loader:
    """Writes batches through one connection, one batch at a time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.patience = 0.0  # seconds a statement may take; 0.0 for ever

    def load(self, batch: list[Work]) -> Outcomes:
        """Load each consumer's part of a batch; what one consumer fails at does not touch the others.

        Raises PositionLost where an offset was not where the batch starts (nothing is written then), and
        psycopg.OperationalError where the connection broke (whether it was committed is then in the offsets).
        """
        with self.connection.transaction(), self.connection.cursor() as cursor:
            if self.patience:
                cursor.execute(f"SET LOCAL statement_timeout = {int(self.patience * 1000)}")
            return {work.consumer.id: self._load_one(cursor, work) for work in batch}

    def _load_one(self, cursor: psycopg.Cursor[Any], work: Work) -> Failure | None:
        begin_part(cursor)
        try:
            _write(cursor, work)
        except (psycopg.Error, Redefined, Stop) as error:
            if self.connection.broken:
                raise
            undo_part(cursor)
            return _failure(cursor, work, error)
        cursor.execute("RELEASE SAVEPOINT part")
        return None


def _failure(cursor: psycopg.Cursor[Any], work: Work, error: Exception) -> Failure:
    if isinstance(error, Redefined):
        return Failure(retry_in=0.0, counts=False)
    if isinstance(error, Stop):
        consumer_state.stop(cursor, work.consumer, error.sqlstate, str(error))
        return Failure(retry_in=None)
    assert isinstance(error, psycopg.Error)
    if not offsets.still(cursor, work.relation):
        return Failure(retry_in=0.0, counts=False)
    sqlstate = error.sqlstate or "08006"
    if sqlstate in _SLOW and (other := offsets.evict(cursor, work.consumer, work.moves)):
        logger.warning("consumer %s: %s held its offsets and was ended", work.consumer, other)
        return Failure(retry_in=0.0, counts=False)
    wait = consumer_state.note(cursor, work.consumer, sqlstate, describe(error), work.failures + 1)
    return Failure(wait, slow=sqlstate in _SLOW)


def begin_part(cursor: psycopg.Cursor[Any]) -> None:
    """Open the savepoint a consumer's part can be undone to.

    Deferred constraints are checked at each statement: at commit they would run after the switch to the owner has
    ended, and fail the batch for everybody.
    """
    cursor.execute("SAVEPOINT part; SET CONSTRAINTS ALL IMMEDIATE")


def undo_part(cursor: psycopg.Cursor[Any]) -> None:
    """Undo all since begin_part()."""
    cursor.execute("ROLLBACK TO SAVEPOINT part")


def _write(cursor: psycopg.Cursor[Any], work: Work) -> None:
    """Claim the offsets, then write the rows and set aside what cannot be one."""
    offsets.claim(cursor, work.consumer, work.relation.version, work.moves)
    rejects = list(work.decoded.rejects)
    if len(work.decoded.payload):
        try:
            with as_owner(cursor, work.consumer):
                work.decoded.payload.load(cursor, 0, len(work.decoded.payload))
        except psycopg.Error as error:
            if cursor.connection.broken or kind_of_error(error) is Kind.OUTAGE:
                raise
            undo_part(cursor)
            begin_part(cursor)
            if not _is_data(cursor, work.consumer, work.decoded.payload, error, 0, len(work.decoded.payload)):
                raise
            offsets.claim(cursor, work.consumer, work.relation.version, work.moves)
            rejects += load_around(cursor, work.consumer, work.decoded.payload, error)
        if not offsets.still(cursor, work.relation):  # claim() looked before the relation was locked
            raise Redefined(f"{work.consumer}: the relation was changed")
    if rejects:
        rejects.sort(key=lambda reject: (reject.message.partition() or 0, reject.message.offset() or 0))
        _dispose(cursor, work.consumer, rejects)
    if work.failures:
        consumer_state.clear(cursor, work.consumer)


def load_around(
    cursor: psycopg.Cursor[Any], consumer: Consumer, payload: Payload, error: psycopg.Error
) -> list[Reject]:
    """Load what can be loaded of a payload that failed with ``error``, and return the messages that cannot.

    A message is bad when it fails alone: where COPY names the line it is tried next, by itself; else the range is
    halved. After a failure ranges start again at one message and double, so that a storm of bad ones costs one
    statement each and not one batch each.
    """
    rejects: list[Reject] = []
    start, size = 0, _next_size(payload, error, 0, len(payload))
    while start < len(payload):
        stop = min(start + size, len(payload))
        cursor.execute("SAVEPOINT range")
        try:
            with as_owner(cursor, consumer):
                payload.load(cursor, start, stop)
        except psycopg.Error as found:
            if cursor.connection.broken or kind_of_error(found) is Kind.OUTAGE:
                raise
            cursor.execute("ROLLBACK TO SAVEPOINT range")
            if not _is_data(cursor, consumer, payload, found, start, stop):
                raise
            if stop - start == 1:
                rejects.append(Reject(payload.messages[start], found.sqlstate or "", describe(found)))
                start, size = stop, 1
            else:
                size = _next_size(payload, found, start, stop)
        else:
            start, size = stop, size * 2
        cursor.execute("RELEASE SAVEPOINT range")
    return rejects


def _is_data(
    cursor: psycopg.Cursor[Any], consumer: Consumer, payload: Payload, error: psycopg.Error, start: int, stop: int
) -> bool:
    """Tell whether the messages [start, stop) are at fault, not how the relation is set up."""
    if kind_of_error(error) is Kind.DATA:
        return True
    with as_owner(cursor, consumer):
        return payload.unreadable(cursor, error, start, stop)


def _next_size(payload: Payload, error: psycopg.Error, start: int, stop: int) -> int:
    """How many messages to try after [start, stop) failed: those before the named line, or half."""
    bad = payload.locate(error, start)
    if bad is None or not start <= bad < stop:
        return max(1, (stop - start) // 2)
    return max(1, bad - start)


def _dispose(cursor: psycopg.Cursor[Any], consumer: Consumer, rejects: list[Reject]) -> None:
    if consumer.on_error == "stop":
        raise Stop(rejects[0])
    bad: dict[TopicPartition, int] = {}
    for message, _, _ in rejects:
        key = TopicPartition(message.topic() or "", message.partition() or 0)
        bad[key] = bad.get(key, 0) + 1
    if consumer.on_error == "dead_letter":
        dead_letters.set_aside(cursor, consumer, rejects)
    offsets.count(cursor, consumer, bad, skipped=consumer.on_error == "skip")


@contextmanager
def as_owner(cursor: psycopg.Cursor[Any], consumer: Consumer) -> Iterator[None]:
    """Run statements as the consumer's owner, with the owner's search_path.

    The token keeps a trigger from ending the switch. On an error nothing is undone here: rolling back to the
    savepoint restores both.
    """
    token = secrets.token_hex(16)
    if consumer.switch_to is not None:
        cursor.execute("SELECT pipeline_kafka.begin_as(%s::oid, %s)", (consumer.switch_to, token))
    cursor.execute("SELECT pg_catalog.set_config('search_path', %s, true)", (consumer.search_path,))
    yield
    if consumer.switch_to is not None:
        cursor.execute("SELECT pipeline_kafka.end_as(%s)", (token,))
    cursor.execute("SELECT pg_catalog.set_config('search_path', %s, true)", (SEARCH_PATH,))

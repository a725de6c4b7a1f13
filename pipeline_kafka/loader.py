"""The PostgreSQL side: one transaction a batch, one savepoint a consumer.

In: a batch's work, decoded. Out: rows, dead letters and offsets, committed together; an outcome for each consumer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from . import consumer_state, dead_letters, offsets, together
from .around import Around
from .errors import Action, Redefined, Rules, describe
from .limit import Limit
from .log import logger
from .message import key_of
from .model import Consumer, TopicPartition
from .offsets import Move
from .owner import as_owner, become_owner, leave_owner
from .tries import Tries
from .why import Bad, of_reject
from .work import Failure, Outcomes, Work

_OTHER = {"part_a": "part_b", "part_b": "part_a"}  # savepoints
_SLOW = ("57014", "55P03")  # statement_timeout, lock_timeout
CAREFUL = 20  # batches that are loaded part by part after one with which something was wrong
_FULL = "53400"  # configuration_limit_exceeded: max_dead_letters is reached


class Refused(Exception):
    """A decoder's refusal that a user's rule does not let be set aside."""

    def __init__(self, bad: Bad) -> None:
        super().__init__(f"{_place(bad)}: {bad.why.error}")
        self.sqlstate = bad.why.sqlstate


class Loader:
    """Writes batches through one connection, one batch at a time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._rules = Rules()
        self._patience = 0.0
        self._savepoint = "part_a"
        self._careful = 0  # batches to load part by part yet
        self._tries = Tries(connection)

    def configure(self, rules: Rules, patience: float) -> None:
        """Between batches: set what is done about errors, and how many seconds a statement may take (0.0: any)."""
        self._rules = rules
        self._patience = patience

    def load(self, batch: list[Work]) -> Outcomes:
        """Load each consumer's part of a batch; what one consumer fails at does not touch the others.

        Raises PositionLost where an offset was not where the batch starts (nothing is written then), and
        psycopg.OperationalError where the connection broke (whether it was committed is then in the offsets).
        """
        try:
            with self.connection.cursor() as cursor:
                if self._load_together(cursor, batch):
                    outcomes: Outcomes = {work.consumer.id: None for work in batch}
                else:
                    outcomes = {work.consumer.id: self._load_one(cursor, work) for work in batch}
            self.connection.commit()
        except BaseException:
            if not self.connection.broken:
                self.connection.rollback()
            raise
        return outcomes

    def _load_together(self, cursor: psycopg.Cursor[Any], batch: list[Work]) -> bool:
        """Load all parts at once, and tell whether that went well; else nothing is done yet."""
        if self._careful or not together.may_be_written(batch):
            self._careful = max(self._careful - 1, 0)
            return False
        try:
            together.write(cursor, batch, self._patience)
        except (psycopg.Error, Redefined) as error:
            if self.connection.broken:
                raise
            logger.debug("a batch is loaded part by part: %s", error)
            self.connection.rollback()
            self._careful = CAREFUL
            return False
        return True

    def _load_one(self, cursor: psycopg.Cursor[Any], work: Work) -> Failure | None:
        try:
            stopped = self._write(cursor, work)
        except (psycopg.Error, Redefined, Refused) as error:
            if self.connection.broken or not self._is_begun():
                raise
            self._undo_part(cursor)
            return self._failure(cursor, work, error)
        return Failure(retry_in=None) if stopped else None

    def _failure(self, cursor: psycopg.Cursor[Any], work: Work, error: Exception) -> Failure:
        if isinstance(error, Redefined):
            return Failure(retry_in=0.0, counts=False)
        assert isinstance(error, psycopg.Error | Refused)
        offsets.ask_versions(cursor, [work.relation])
        if not offsets.still(cursor, [work.relation]):
            return Failure(retry_in=0.0, counts=False)
        sqlstate = error.sqlstate or "08006"
        if sqlstate in _SLOW and (other := offsets.evict(cursor, work.consumer, work.moves)):
            logger.warning("consumer %s: %s held its offsets and was ended", work.consumer, other)
            return Failure(retry_in=0.0, counts=False)
        action = self._rules.action_of(error) if isinstance(error, psycopg.Error) else self._rules.action(sqlstate)
        pauses = action is Action.PAUSE
        wait = consumer_state.note(cursor, work.consumer, sqlstate, describe(error), work.failures + 1, pauses)
        return Failure(wait, slow=sqlstate in _SLOW)

    def _write(self, cursor: psycopg.Cursor[Any], work: Work) -> bool:
        """Claim the offsets, write the rows, and set aside what cannot be one; tell whether the consumer stopped."""
        refused = [of_reject(reject) for reject in work.decoded.rejects]
        token, answer, claims = None, self.connection.cursor(), [(work.consumer, work.moves)]
        with self.connection.pipeline():
            self._begin_part(cursor)
            offsets.claim(answer, claims)
            if not refused and len(work.decoded.payload):  # else it depends on what the limit turns out to be
                token = become_owner(cursor, work.consumer)
        offsets.check_claim(answer, claims)
        self._check(refused)
        limit = _limit(cursor, work, refused)
        try:
            self._write_rows(cursor, work, limit.end(), token)
        except psycopg.Error as error:
            if cursor.connection.broken:
                raise
            self._undo_part(cursor)
            if not self._blames_message(cursor, work, error, limit.end()):
                raise
            _claim(cursor, work, work.moves)
            limit = _limit(cursor, work, refused, found=True)
            around = Around(cursor, self._tries, work, self._rules, limit)
            around.load(error)
            refused += around.bad
            offsets.ask_versions(cursor, [work.relation])
        if not offsets.still(cursor, [work.relation]):
            raise Redefined(f"{work.consumer}: the relation was changed")
        refused.sort(key=lambda bad: limit.place(bad.message))
        return _settle(cursor, work, limit, refused)

    def _begin_part(self, cursor: psycopg.Cursor[Any]) -> None:
        """Open the savepoint a consumer's part can be undone to, in the batch's transaction.

        Savepoints take turns with two names: where the last one could not be released, going back to it would undo
        another consumer's part.
        """
        if self._is_begun():
            cursor.execute(f"RELEASE SAVEPOINT {self._savepoint}")
        else:
            together.begin(cursor, self._patience)
        self._savepoint = _OTHER[self._savepoint]
        cursor.execute(f"SAVEPOINT {self._savepoint}")

    def _undo_part(self, cursor: psycopg.Cursor[Any]) -> None:
        cursor.execute(f"ROLLBACK TO SAVEPOINT {self._savepoint}")

    def _is_begun(self) -> bool:
        return self.connection.info.transaction_status != TransactionStatus.IDLE

    def _write_rows(self, cursor: psycopg.Cursor[Any], work: Work, end: int, token: str | None) -> None:
        """Write them as the owner (one is it with a ``token``); on the way back ask for the relation's version."""
        if not end:
            offsets.ask_versions(cursor, [work.relation])
            return
        if token is None:
            with self.connection.pipeline():
                token = become_owner(cursor, work.consumer)
        work.decoded.payload.load(cursor, 0, end)
        with self.connection.pipeline():
            leave_owner(cursor, work.consumer, token)
            offsets.ask_versions(cursor, [work.relation])

    def _blames_message(self, cursor: psycopg.Cursor[Any], work: Work, error: psycopg.Error, end: int) -> bool:
        def is_unreadable() -> bool:
            with as_owner(cursor, work.consumer):
                return work.decoded.payload.unreadable(cursor, error, 0, end)

        return self._rules.blames_message(error, is_unreadable)

    def _check(self, refused: list[Bad]) -> None:
        """Raise Refused where a rule says that what the decoder has refused is not to be set aside."""
        for bad in refused:
            if self._rules.action(bad.why.sqlstate) is not Action.SET_ASIDE:
                raise Refused(bad)


def _claim(cursor: psycopg.Cursor[Any], work: Work, moves: Mapping[TopicPartition, Move]) -> None:
    offsets.claim(cursor, [(work.consumer, moves)])
    offsets.check_claim(cursor, [(work.consumer, moves)])


def _limit(cursor: psycopg.Cursor[Any], work: Work, refused: list[Bad], found: bool = False) -> Limit:
    """Return how far the part may be loaded; ``found`` tells that the server has found bad messages too."""
    room: float = math.inf
    if work.consumer.on_error == "stop":
        room = 0
    elif work.consumer.on_error == "dead_letter" and work.consumer.max_dead_letters and (refused or found):
        most = work.consumer.max_dead_letters
        room = most - dead_letters.held(cursor, work.consumer, most)
    return Limit(room, work.moves, work.decoded.payload, refused)


def _settle(cursor: psycopg.Cursor[Any], work: Work, limit: Limit, bad: Sequence[Bad]) -> bool:
    """Set the bad messages aside, or count them, and stop the consumer at the one it may not pass."""
    consumer, last = work.consumer, limit.cut(bad)
    if last is not None:
        bad = bad[: int(limit.room)]
        _claim(cursor, work, limit.left(last, work.messages))
    if bad:
        _dispose(cursor, work, bad)
    if last is not None and not consumer_state.stop(cursor, consumer, *_reason(consumer, last)):
        raise Redefined(f"{consumer}: it was begun or moved meanwhile")
    if last is None and work.failures:
        consumer_state.clear(cursor, consumer)
    return last is not None


def _dispose(cursor: psycopg.Cursor[Any], work: Work, bad: Sequence[Bad]) -> None:
    numbers: dict[TopicPartition, int] = {}
    for message, _ in bad:
        numbers[key_of(message)] = numbers.get(key_of(message), 0) + 1
    if work.consumer.on_error == "dead_letter":
        dead_letters.set_aside(cursor, work.consumer, work.relation, bad)
    offsets.count(cursor, work.consumer, numbers, skipped=work.consumer.on_error == "skip")


def _reason(consumer: Consumer, last: Bad) -> tuple[str, str]:
    """Return why a consumer stopped: a SQLSTATE, and a text that says what to do."""
    again = "resume_replay()" if consumer.replay else "consume_begin()"
    if consumer.on_error == "stop":
        return last.why.sqlstate, f"{_place(last)}: {last.why.error}\n{_PASS.format(again)}"
    said = f"max_dead_letters ({consumer.max_dead_letters}) is reached; {_place(last)}: {last.why.error}"
    return _FULL, f"{said}\n{_MAKE_ROOM.format(again)}"


_PASS = (
    "Nothing behind it in its partition was loaded. Mend the relation or the message's sender and call {},"
    " which goes on at this message; on_error => 'dead_letter' passes it."
)
_MAKE_ROOM = (
    "Nothing was loaded behind it. Look into dead_letters_shown, mend what is wrong, empty it by retry_dead_letters()"
    " or discard_dead_letters(), or raise max_dead_letters; then {} goes on from here."
)


def _place(bad: Bad) -> str:
    return f"{key_of(bad.message)} offset {bad.message.offset()}"

"""A batch for many consumers with which nothing seems wrong: all its parts at once.

In: the work of a batch. Out: rows and offsets in a transaction that is still open. An error says that something is
wrong, and not with whose part: the loader then undoes all, and goes part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import psycopg

from . import offsets
from .errors import Redefined
from .owner import become_owner, leave_owner
from .work import Work


def may_be_written(batch: Sequence[Work]) -> bool:
    """Tell whether it is worth trying: parts one by one take three times as many statements, and a savepoint each."""
    return len(batch) > 1 and not any(work.failures or work.decoded.rejects for work in batch)


def write(cursor: psycopg.Cursor[Any], batch: Sequence[Work], patience: float) -> None:
    """Write a batch, giving each statement ``patience`` seconds (0.0: any).

    Raises PositionLost where an offset was not where the batch starts, Redefined where a relation was changed, and
    psycopg.Error.
    """
    connection, answer, token = cursor.connection, cursor.connection.cursor(), ""
    claims = [(work.consumer, work.moves) for work in batch]
    written = [work for work in batch if len(work.decoded.payload)]
    relations = [work.relation for work in batch]
    with connection.pipeline():
        begin(cursor, patience)
        offsets.claim(answer, claims)
        if written:
            token = become_owner(cursor, written[0].consumer)
        else:
            offsets.ask_versions(cursor, relations)
    offsets.check_claim(answer, claims)
    for work, following in pairwise([*written, None]):
        assert work is not None
        work.decoded.payload.load(cursor, 0, len(work.decoded.payload))
        with connection.pipeline():
            leave_owner(cursor, work.consumer, token)
            if following is not None:
                token = become_owner(cursor, following.consumer)
            else:
                offsets.ask_versions(cursor, relations)
    if not offsets.still(cursor, relations):
        raise Redefined("one of many relations was changed")


def begin(cursor: psycopg.Cursor[Any], patience: float) -> None:
    """Begin a batch's transaction, in which a statement may take ``patience`` seconds (0.0: any).

    Deferred constraints are checked at each statement: at commit they would run after the switch to the owner has
    ended, and fail the batch for everybody.
    """
    cursor.execute("BEGIN")
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    if patience:
        cursor.execute(f"SET LOCAL statement_timeout = {int(patience * 1000)}")

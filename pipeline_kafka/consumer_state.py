"""The last trouble of a consumer, where consumers_status shows it.

In: a failure, or its end. Out: rows of pipeline_kafka.consumer_state; and the end of a consumer that must stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from .log import logger
from .model import Consumer

Cursor = psycopg.Cursor[Any]
MAX_BACKOFF = 30.0  # seconds
MAX_PAUSE = 60.0  # seconds

# By id and relation: where the extension was dropped and made again, ids begin anew, and this is another's. And by
# version: who has called consume_begin() or seek() meanwhile, perhaps for just this reason, is not to find it stopped.
_STOP = """
WITH stopped AS (
    UPDATE pipeline_kafka.consumers SET enabled = false
    WHERE id = %s AND relation = %s::oid AND xmin::text = %s AND enabled RETURNING id)
INSERT INTO pipeline_kafka.consumer_state (consumer_id, sqlstate, error, failures)
SELECT id, %s, %s, 1 FROM stopped
ON CONFLICT (consumer_id) DO UPDATE
SET sqlstate = EXCLUDED.sqlstate, error = EXCLUDED.error, failed_at = EXCLUDED.failed_at, failures = 1, retry_at = NULL
"""
_NOTE = """
INSERT INTO pipeline_kafka.consumer_state (consumer_id, sqlstate, error, failures, retry_at)
SELECT c.id, %(sqlstate)s, %(error)s, %(failures)s, clock_timestamp() + %(wait)s * interval '1 second'
FROM pipeline_kafka.consumers c WHERE c.id = %(consumer)s AND c.relation = %(relation)s::oid AND c.enabled
ON CONFLICT (consumer_id) DO UPDATE
SET sqlstate = EXCLUDED.sqlstate, error = EXCLUDED.error, failed_at = EXCLUDED.failed_at,
    failures = EXCLUDED.failures, retry_at = EXCLUDED.retry_at
"""


def note(cursor: Cursor, consumer: Consumer, sqlstate: str, error: str, failures: int, pauses: bool = False) -> float:
    """Store a consumer's failure, its ``failures``th in a row, and return in how many seconds to try again.

    With ``pauses`` that is later: somebody has to mend the set-up first.
    """
    wait = min(MAX_PAUSE, 10 * backoff(failures)) if pauses else backoff(failures)
    values = {"sqlstate": sqlstate, "error": _text(error), "failures": failures, "wait": wait}
    cursor.execute(_NOTE, {**values, "consumer": consumer.id, "relation": consumer.relation})
    logger.warning("consumer %s failed, next try in %.1f s: %s %s", consumer, wait, sqlstate, error)
    return wait


def stop(cursor: Cursor, consumer: Consumer, sqlstate: str, error: str) -> bool:
    """Disable a consumer, with the reason, until consume_begin() is called again.

    Return False where that was called meanwhile, or seek(): nothing is done then, for the reason may hold no more.
    """
    values = (consumer.id, consumer.relation, consumer.version, sqlstate, _text(error))
    stopped = cursor.execute(_STOP, values).rowcount == 1
    if stopped:
        logger.error("consumer %s stopped: %s %s", consumer, sqlstate, error)
    return stopped


def failing(connection: psycopg.Connection[Any], consumers: Iterable[int]) -> dict[int, int]:
    """Return how often in a row each consumer (by id) has failed, for those that have not gone on since."""
    query = (
        "SELECT consumer_id, failures FROM pipeline_kafka.consumer_state WHERE failures > 0 AND consumer_id = ANY (%s)"
    )
    return dict(connection.execute(query, (list(consumers),)).fetchall())


def clear(cursor: Cursor, consumer: Consumer) -> None:
    """Note that a consumer goes on."""
    cursor.execute(
        "UPDATE pipeline_kafka.consumer_state SET failures = 0, retry_at = NULL WHERE consumer_id = %s",
        (consumer.id,),
    )
    logger.info("consumer %s goes on", consumer)


def backoff(failures: int) -> float:
    """Return how many seconds to wait after so many failures in a row: 0.1 doubling up to 30."""
    return min(MAX_BACKOFF, 0.1 * 2.0 ** min(failures - 1, 16))


def _text(error: str) -> str:
    return error.replace("\0", "?")

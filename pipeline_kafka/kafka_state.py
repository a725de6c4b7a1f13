"""What keeps a worker from Kafka, where consumers_status shows it.

In: consumers, each with why its group cannot be read now. Out: rows of pipeline_kafka.kafka_state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from .steps import Refusal

_FORGET = "DELETE FROM pipeline_kafka.kafka_state WHERE slot = %s AND consumer_id <> ALL (%s)"
# A consumer that was deleted meanwhile is passed over.
_TELL = """
INSERT INTO pipeline_kafka.kafka_state AS s (slot, consumer_id, step, sqlstate, error)
SELECT %s, c.id, u.step, u.sqlstate, u.error
FROM unnest(%s::int[], %s::text[], %s::text[], %s::text[]) AS u(id, step, sqlstate, error)
JOIN pipeline_kafka.consumers c ON c.id = u.id
FOR KEY SHARE OF c
ON CONFLICT (slot, consumer_id) DO UPDATE
SET step = EXCLUDED.step, sqlstate = EXCLUDED.sqlstate, error = EXCLUDED.error, failed_at = EXCLUDED.failed_at
"""


def tell(connection: psycopg.Connection[Any], slot: int, refusals: Mapping[int, Refusal]) -> None:
    """Store why a worker cannot read for these consumers (by id); it can for all others."""
    rows = [(key, r.step.name, r.step.sqlstate, text_of(r)) for key, r in sorted(refusals.items())]
    with connection.transaction():
        connection.execute(_FORGET, (slot, [row[0] for row in rows]))
        if rows:
            connection.execute(_TELL, (slot, *(list(column) for column in zip(*rows, strict=True))))


def text_of(refusal: Refusal) -> str:
    """Return what a person is told: what failed, and what to look at."""
    return "\n".join(filter(None, [str(refusal), refusal.step.hint])).replace("\0", "?")

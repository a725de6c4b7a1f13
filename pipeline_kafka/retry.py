"""Dead letters tried again, in the caller's session and transaction, as the owner of their consumer.

In: plpy, and which letters. Out: rows in place of letters; what fails again stays, with the new error.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any, NamedTuple, cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from . import catalog
from .dead_letters import column_names, readable
from .decoders import decode
from .decoders.payload import Misfit, Refused
from .errors import ROW_SECURITY, Action, Rules
from .model import Consumer, Relation
from .session import OwnersCursor, Row, Session
from .why import Why

_FIND = """
SELECT coalesce(array_agg(id ORDER BY consumer_id, topic, partition, kafka_offset), '{}') AS ids
FROM (SELECT d.id, d.consumer_id, d.topic, d.partition, d.kafka_offset
FROM pipeline_kafka.dead_letters d
JOIN pipeline_kafka.consumers c ON c.id = d.consumer_id
JOIN pg_catalog.pg_class r ON r.oid = c.relation
WHERE (%(id)s::int8 IS NULL OR d.id = %(id)s::int8) AND (%(topic)s IS NULL OR d.topic = %(topic)s)
  AND (%(relation)s IS NULL OR c.relation = %(relation)s::regclass)
  AND (%(sqlstate)s IS NULL OR d.sqlstate ^@ %(sqlstate)s)
ORDER BY d.consumer_id, d.topic, d.partition, d.kafka_offset
LIMIT %(max)s::int8) AS f
"""
# A letter that another session is trying, fixing or discarding is passed over.
_TAKE = """
SELECT id, consumer_id, topic, partition, kafka_offset, key, value, headers, timestamp_type,
       (extract(epoch FROM kafka_timestamp) * 1000)::int8 AS milliseconds
FROM pipeline_kafka.dead_letters WHERE id = %s::int8 FOR UPDATE SKIP LOCKED
"""
# COPY, which a worker may have tried first, names the column where an INSERT does not: the same error keeps it.
_FAIL = """
UPDATE pipeline_kafka.dead_letters
SET sqlstate = %(sqlstate)s, error = %(error)s, detail = %(detail)s, hint = %(hint)s,
    context = CASE WHEN error = %(error)s THEN context END,
    column_name = coalesce(%(column)s, CASE WHEN error = %(error)s THEN column_name END),
    tries = tries + 1, tried_at = clock_timestamp()
WHERE id = %(id)s::int8
"""
_REMOVE = "DELETE FROM pipeline_kafka.dead_letters WHERE id = %s::int8"
_COUNT = """
INSERT INTO pipeline_kafka.dead_letter_outcomes (consumer_id, outcome, count) VALUES (%s::int, 'loaded', %s::int8)
"""


class Counts(NamedTuple):
    """Letters that were tried, and of them those loaded and those that failed again."""

    retried: int
    loaded: int
    failed: int


class Letter:
    """A dead letter in the form of the message that it was."""

    def __init__(self, row: Row) -> None:
        self.id: int = row["id"]
        self.consumer: int = row["consumer_id"]
        self._row = row

    def topic(self) -> str:
        """Return the topic, as confluent_kafka.Message does; likewise the rest."""
        return cast(str, self._row["topic"])

    def partition(self) -> int:
        """Return the partition."""
        return cast(int, self._row["partition"])

    def offset(self) -> int:
        """Return the offset."""
        return cast(int, self._row["kafka_offset"])

    def key(self) -> bytes | None:
        """Return the key."""
        return cast("bytes | None", self._row["key"])

    def value(self) -> bytes | None:
        """Return the value, as it was sent or has been fixed."""
        return cast("bytes | None", self._row["value"])

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return the headers."""
        headers = self._row["headers"]
        return None if headers is None else [_header(header) for header in json.loads(headers)]

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp and its milliseconds. Those that are no dates were not kept."""
        milliseconds = self._row["milliseconds"]
        if milliseconds is None:
            return TIMESTAMP_NOT_AVAILABLE, -1
        kind = TIMESTAMP_LOG_APPEND_TIME if self._row["timestamp_type"] == "append" else TIMESTAMP_CREATE_TIME
        return kind, milliseconds


def retry(
    plpy: Any, id: int | None, topic: str | None, relation: str | None, sqlstate: str | None, most: int | None
) -> Counts:
    """Try letters again, in Kafka's order: one by its id, or those of a topic, relation or SQLSTATE (or class).

    Raises plpy.SPIError where it is not a message that is at fault, plpy.Error where a relation cannot take its
    consumer's format at all; nothing is changed then.
    """
    session = Session(plpy)
    session.execute("SET CONSTRAINTS ALL IMMEDIATE")
    desk = _Desk(plpy, session)
    chosen = {"id": id, "topic": topic, "relation": relation, "sqlstate": sqlstate, "max": most}
    # All at once: what stays open while an owner's triggers run they could read, and move on.
    for letter in session.read(_FIND, chosen)[0]["ids"]:
        desk.retry(letter)
    for consumer, count in desk.loaded.items():
        session.execute(_COUNT, (consumer, count))
    loaded = sum(desk.loaded.values())
    return Counts(loaded + desk.failed, loaded, desk.failed)


class _Desk:
    """Tries one letter after the other. ``loaded`` counts by consumer's id."""

    def __init__(self, plpy: Any, session: Session) -> None:
        self.loaded: dict[int, int] = {}
        self.failed = 0
        self._plpy = plpy
        self._session = session
        self._targets: dict[int, tuple[Consumer, Relation]] = {}
        self._rules = rules_of(session)

    def retry(self, id: int) -> None:
        """Try the letter with this id, unless it is gone or somebody else's."""
        for row in self._session.read(_TAKE, (id,)):
            letter = Letter(row)
            why = self._refusal(letter)
            if why is None:
                self.loaded[letter.consumer] = self.loaded.get(letter.consumer, 0) + 1
            else:
                self._fail(letter, why)

    def _refusal(self, letter: Letter) -> Why | None:
        """Load a letter and remove it; return why not, with nothing done, where it is at fault itself."""
        try:
            with self._plpy.subtransaction():
                self._load(letter)
                self._session.execute(_REMOVE, (letter.id,))
        except Refused as refused:
            return Why(refused.sqlstate, str(refused))
        except Misfit as misfit:
            self._plpy.error(f"dead letter {letter.id}: {misfit}", sqlstate="42804")
        except self._plpy.SPIError as error:
            return refused_by(error, self._rules)
        return None

    def _load(self, letter: Letter) -> None:
        consumer, relation = self._target(letter.consumer)
        decoded = decode(consumer, relation, [cast(Message, letter)])
        for _, sqlstate, error in decoded.rejects:
            raise Refused(sqlstate, error)
        if len(decoded.payload):
            cursor = OwnersCursor(self._session, consumer, relation)
            decoded.payload.load(cast(Any, cursor), 0, len(decoded.payload))

    def _fail(self, letter: Letter, why: Why) -> None:
        _, relation = self._target(letter.consumer)
        self.failed += 1
        (column,) = column_names(self._session, relation, [why])
        texts = {"error": readable(why.error), "detail": readable(why.detail), "hint": readable(why.hint)}
        self._session.execute(_FAIL, {**texts, "sqlstate": why.sqlstate, "column": column, "id": letter.id})

    def _target(self, consumer_id: int) -> tuple[Consumer, Relation]:
        """Return a consumer and its relation, as they are now."""
        if consumer_id not in self._targets:
            consumer, relation = catalog.target(self._session.read, consumer_id)
            assert relation is not None  # _FIND has joined it
            self._targets[consumer_id] = consumer, replace(relation, takes_copy=False)
        return self._targets[consumer_id]


def rules_of(session: Session) -> Rules:
    """Return what is done about errors in this database."""
    rows = session.read("SELECT code, action FROM pipeline_kafka.error_rules")
    return Rules((row["code"], row["action"]) for row in rows)


def refused_by(error: Any, rules: Rules) -> Why:
    """Return why a message was refused, as plpy says it. Raises the error where no message is at fault.

    See PLy_spi_exception_set() in PostgreSQL's plpy_spi.c.
    """
    refused_row = error.sqlstate == ROW_SECURITY and "row-level security policy" in str(error)
    if rules.action(error.sqlstate, row_security=refused_row) is not Action.SET_ASIDE:
        raise error
    _, detail, hint, _, _, schema, table, column, _, constraint = error.spidata
    named = (schema or "", table, constraint) if constraint and table else None
    return Why(error.sqlstate, str(error), detail, hint, None, column, named)


def _header(header: dict[str, str | None]) -> tuple[str, bytes | None]:
    encoded, value = header.get("base64"), header.get("value")
    if encoded is not None:
        return str(header["name"]), b64decode(encoded)
    return str(header["name"]), None if value is None else value.encode()

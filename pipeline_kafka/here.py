"""replay_here(): a part of a topic read in the caller's session and transaction, as the caller.

In: plpy, a replay that was just stored. Out: rows, dead letters and counts in the transaction that is open.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

import msgspec
from confluent_kafka import Message

from . import catalog
from .answers.protocol import PIECE, TROUBLE, Trouble
from .asking import frames, raise_trouble
from .dead_letters import column_names, readable
from .decoders import decode
from .decoders.payload import Misfit, Payload, Refused
from .errors import Action
from .message import headers_json, when
from .retry import refused_by, rules_of
from .session import OwnersCursor, Row, Session
from .why import Bad, Why, of_reject

TELL_EVERY = 5.0  # seconds between notices of how far it is

_PARTS = """
SELECT c.topic, p.partition, o.next_offset, p.end_offset, r.max_messages
FROM pipeline_kafka.replays r
JOIN pipeline_kafka.consumers c ON c.id = r.id
JOIN pipeline_kafka.replay_partitions p ON p.replay_id = r.id
JOIN pipeline_kafka.offsets o ON o.consumer_id = r.id AND o.topic = c.topic AND o.partition = p.partition
WHERE r.id = %s::int
"""
_READ = "SELECT pipeline_kafka.read_replay(%s::int, %s::int) AS piece"
_NOTE = """
INSERT INTO pipeline_kafka.requests (function, arguments) SELECT 'pipeline_kafka.replay_here'::regproc::oid, %s::jsonb
"""
_FULL = "53400"  # configuration_limit_exceeded: max_dead_letters is reached


class Counts(NamedTuple):
    """Messages that were passed, and what became of them."""

    messages: int
    loaded: int
    set_aside: int
    skipped: int
    nulls: int


def read_replay(plpy: Any, replay: int, timeout: int) -> Iterator[bytes]:
    """Yield the messages of a replay in pieces: see answers/replays.py. ``timeout`` is in milliseconds.

    Each begins with its kind. Of what an iterator raises PL/Python makes "error fetching next item from iterator", so
    that a trouble is the last piece.
    """
    parts = Session(plpy).read(_PARTS, (replay,))
    if not parts:
        return
    asked = {
        "topic": parts[0]["topic"],
        "starts": {str(part["partition"]): part["next_offset"] for part in parts},
        "ends": {str(part["partition"]): part["end_offset"] for part in parts},
        "most": parts[0]["max_messages"],
    }
    try:
        for frame in frames(plpy, "messages", asked, timeout):
            yield PIECE + frame.data
    except (plpy.Error, plpy.SPIError) as error:
        yield TROUBLE + msgspec.json.encode(Trouble(error.sqlstate, str(error), error.detail, error.hint))


def load_replay(plpy: Any, replay: int, timeout: int) -> Counts:
    """Read a replay and load it, as the caller; see replay_here().

    Raises plpy.SPIError where it is not a message that is at fault, and plpy.Error where the relation cannot take the
    format at all, or a bad message is not to be passed.
    """
    session = Session(plpy)
    session.execute("SET CONSTRAINTS ALL IMMEDIATE")
    load = _Load(plpy, session, replay)
    for row in session.each(_READ, (replay, timeout)):
        kind, data = row["piece"][:1], row["piece"][1:]
        if kind == TROUBLE:
            raise_trouble(plpy, msgspec.json.decode(data, type=Trouble))
        load.piece(data)
    return load.counts()


class _Load:
    """Loads piece after piece."""

    def __init__(self, plpy: Any, session: Session, replay: int) -> None:
        self._plpy = plpy
        self._session = session
        self._consumer, relation = catalog.target(session.read, replay)
        assert relation is not None  # it was looked at in this transaction
        self._relation = replace(relation, takes_copy=False)
        self._cursor = cast(Any, OwnersCursor(session, self._consumer, self._relation))
        self._rules = rules_of(session)
        self._messages = self._bad = self._nulls = 0
        self._tell_at = time.monotonic() + TELL_EVERY

    def counts(self) -> Counts:
        """Return what became of the messages so far."""
        skips = self._consumer.on_error == "skip"
        set_aside, skipped = (0, self._bad) if skips else (self._bad, 0)
        return Counts(self._messages, self._messages - self._bad - self._nulls, set_aside, skipped, self._nulls)

    def piece(self, data: bytes) -> None:
        """Load a piece, and note what became of it."""
        left, reached, rows = msgspec.msgpack.decode(data, type=tuple[int, dict[int, int], list[Any]], strict=False)
        messages = [_message(self._consumer.topic, *row) for row in rows]
        bad = self._load(messages)
        self._messages += len(messages)
        self._bad += len(bad)
        self._note(reached, messages, bad)
        if time.monotonic() >= self._tell_at:
            self._plpy.notice(f"{self._messages} messages were read, {left} offsets are left")
            self._tell_at = time.monotonic() + TELL_EVERY

    def _load(self, messages: list[Message]) -> list[Bad]:
        """Load messages; return those that the relation does not take, in Kafka's order."""
        try:
            decoded = decode(self._consumer, self._relation, messages)
        except Misfit as misfit:
            raise_trouble(self._plpy, Trouble("42804", str(misfit)))
        bad = [of_reject(reject) for reject in decoded.rejects]
        for each in bad:
            if self._rules.action(each.why.sqlstate) is not Action.SET_ASIDE:
                self._refuse(each.why.sqlstate, each, "a rule does not let it be set aside")
        bad += self._range(decoded.payload, 0, len(decoded.payload))
        bad.sort(key=lambda each: (each.message.partition(), each.message.offset()))
        self._stop_at(bad)
        return bad

    def _range(self, payload: Payload, start: int, stop: int) -> list[Bad]:
        """Load messages together or, where that fails, each half of them by itself."""
        if start == stop:
            return []
        why = self._refusal(payload, start, stop)
        if why is None:
            return []
        if stop - start == 1:
            return [Bad(payload.messages[start], why)]
        middle = (start + stop) // 2
        return self._range(payload, start, middle) + self._range(payload, middle, stop)

    def _refusal(self, payload: Payload, start: int, stop: int) -> Why | None:
        try:
            with self._plpy.subtransaction():
                payload.load(self._cursor, start, stop)
        except Refused as refused:
            return Why(refused.sqlstate, str(refused))
        except self._plpy.SPIError as error:
            return refused_by(error, self._rules)
        return None

    def _stop_at(self, bad: list[Bad]) -> None:
        most = self._consumer.max_dead_letters
        if bad and self._consumer.on_error == "stop":
            self._refuse(bad[0].why.sqlstate, bad[0], "on_error => 'dead_letter' passes it")
        if self._consumer.on_error == "dead_letter" and most is not None and self._bad + len(bad) > most:
            self._refuse(_FULL, bad[most - self._bad], f"max_dead_letters ({most}) is reached")

    def _refuse(self, sqlstate: str, bad: Bad, hint: str) -> None:
        message, why = bad
        place = f"{message.topic()}[{message.partition()}] offset {message.offset()}"
        raise_trouble(self._plpy, Trouble(sqlstate, f"{place}: {why.error}", why.detail, hint))

    def _note(self, reached: dict[int, int], messages: list[Message], bad: list[Bad]) -> None:
        passed = Counter(message.partition() for message in messages)
        refused = Counter(message.partition() for message, _ in bad)
        nulls = Counter(m.partition() for m in messages if m.value() is None and self._consumer.on_null == "skip")
        self._nulls += sum(nulls.values())
        aside = "skipped" if self._consumer.on_error == "skip" else "set_aside"
        partitions = [
            {
                "partition": number,
                "next": offset,
                "messages": passed[number],
                "nulls": nulls[number],
                "set_aside": 0,
                "skipped": 0,
                aside: refused[number],
            }
            for number, offset in reached.items()
        ]
        letters = [] if aside == "skipped" else self._letters(bad)
        arguments = {"id": self._consumer.id, "partitions": partitions, "letters": letters}
        self._session.execute(_NOTE, (msgspec.json.encode(arguments).decode(),))

    def _letters(self, bad: list[Bad]) -> list[Row]:
        names = column_names(self._session, self._relation, [why for _, why in bad])
        return [_letter(message, why, name) for (message, why), name in zip(bad, names, strict=True)]


def _message(
    topic: str,
    partition: int,
    offset: int,
    kind: int,
    milliseconds: int,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
) -> Message:
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=(kind, milliseconds),
        key=key,
        value=value,
        headers=headers and [tuple(header) for header in headers],
    )


def _letter(message: Message, why: Why, column: str | None) -> Row:
    return {
        "partition": message.partition(),
        "kafka_offset": message.offset(),
        "key": _base64(message.key()),
        "value": _base64(message.value()),
        "headers": headers_json(message),
        "kafka_timestamp": when(message),
        "sqlstate": why.sqlstate,
        "error": readable(why.error),
        "detail": readable(why.detail),
        "hint": readable(why.hint),
        "column_name": column,
    }


def _base64(data: bytes | str | None) -> str | None:
    return None if data is None else base64.b64encode(cast(bytes, data)).decode()

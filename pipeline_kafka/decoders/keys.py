"""on_conflict and on_null: which key counts, how rows are written by it, and which row a message's key names.

In: a consumer, a relation. Out: a Key, a Writer, a Reader of messages without a value.
"""

from __future__ import annotations

import msgspec
from confluent_kafka import Message

from ..model import Consumer, Key, Relation
from . import merge, syntax, utf8
from .insert import Insert
from .metadata import Field
from .payload import METADATA, Misfit, Refused, insertable
from .rows import Reader, Row, Writer
from .upsert import Upsert

_NO_KEY = "22004"  # null_value_not_allowed
_decode = msgspec.json.Decoder(msgspec.Raw).decode


def conflict_key(consumer: Consumer, relation: Relation) -> Key | None:
    """Return the key that a consumer's on_conflict goes by; None where that is 'error'. Raises Misfit."""
    if consumer.on_conflict == "error":
        return None
    wanted = consumer.conflict_key
    key = next((k for k in relation.keys if (k.name == wanted if wanted else k.is_primary)), None)
    if key is None:
        what = f'unique constraint "{wanted}"' if wanted else "primary key"
        raise Misfit(
            f"{relation.qualified} has no {what} that on_conflict can go by: not deferrable, partial or of expressions"
        )
    writable = {column.name for column in insertable(relation)} - {consumer.unknown_fields}
    filled = [column.name for column in key.columns if column.name not in writable]
    if filled:
        raise Misfit(f'key "{key.name}" of {relation.qualified} has a column that no message can name: "{filled[0]}"')
    return key


def writer(consumer: Consumer, relation: Relation, rest: Field | None = None) -> Writer:
    """Return what writes a consumer's rows. ``rest`` is for unknown fields. Raises Misfit."""
    key = conflict_key(consumer, relation)
    if key is None:
        return Insert(relation)
    if consumer.on_conflict == "ignore":
        return Insert(relation, f" {merge.conflict(key)} DO NOTHING")
    return Upsert(relation, key, rest)


def with_tombstones(consumer: Consumer, relation: Relation, read: Reader) -> Reader:
    """Return a reader that takes messages without a value, too, where these delete. Raises Misfit."""
    key = conflict_key(consumer, relation)
    if key is None or consumer.on_null != "delete":
        return read
    gone = Tombstones(key)
    return lambda message: gone(message) if message.value() is None else read(message)


class Tombstones:
    """Reads messages without a value as the rows to delete.

    Columns named kafka_* are the message's own. The others come from its key: a JSON object that names them, or for a
    single one its value alone, as JSON or as any other text.
    """

    def __init__(self, key: Key) -> None:
        self._names = [column.name for column in key.columns if column.name not in METADATA]

    def __call__(self, message: Message) -> list[Row]:
        """Return the row whose key this message's is. Raises Refused where it names none."""
        fields = self._fields(message.key()) if self._names else {}
        for name in self._names:
            if fields.get(name, b"null") == b"null":
                raise Refused(_NO_KEY, f'a message without a value deletes the row of its key, which has no "{name}"')
        return [Row(_object(self._names, fields), frozenset(self._names), is_gone=True)]

    def _fields(self, key: bytes | None) -> dict[str, bytes]:
        """Return the JSON of each column that a Kafka key gives."""
        if key is None:
            return {}
        utf8.check(key, "the key of a message without a value", remedy="it must name the row to delete")
        try:
            value = bytes(_decode(key))
            syntax.check_no_zero(value)
        except (msgspec.DecodeError, RecursionError):
            value = msgspec.json.encode(key.decode())
        if value.startswith(b"{"):
            return {name: bytes(field) for name, field in syntax.rows(value)[0][1].items()}
        return {self._names[0]: value} if len(self._names) == 1 else {}


def _object(names: list[str], fields: dict[str, bytes]) -> bytes:
    return msgspec.json.encode({name: msgspec.Raw(fields[name]) for name in names})

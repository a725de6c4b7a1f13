"""Decoding: from a consumer's messages to rows that its relation can load.

In: messages as Kafka has them. Out: a Payload for the loader, and the messages that can never be loaded.
"""

from __future__ import annotations

from confluent_kafka import Message

from ..model import Consumer, Relation
from . import csv, json, keys, metadata, raw, text
from .payload import Decoded, Misfit, Reject, fillable, insertable

_DECODERS = {"text": text.decode, "csv": csv.decode, "json": json.decode, "raw": raw.decode}


def check(consumer: Consumer, relation: Relation) -> None:
    """Raise Misfit where the relation cannot take what the consumer is to do, whatever is sent."""
    metadata.fields(relation)
    keys.conflict_key(consumer, relation)
    if consumer.format == "raw":
        raw.target(relation)
    elif not fillable(relation):
        has = "only kafka_* columns" if insertable(relation) else "no column that may be written"
        raise Misfit(f"format {consumer.format} needs a column to fill: {relation.qualified} has {has}")
    if consumer.format == "json":
        json.check(consumer, relation)


def decode(consumer: Consumer, relation: Relation, messages: list[Message]) -> Decoded:
    """Decode a batch for one consumer. Raises Misfit as check() does."""
    check(consumer, relation)
    fields = metadata.fields(relation)
    wanted, rejects, nulls = _sort_out(consumer, messages)
    legible, illegible = metadata.legible(fields, wanted)
    payload, more = _DECODERS[consumer.format](consumer, relation, fields, legible)
    return Decoded(payload, [*rejects, *illegible, *more], nulls)


def _sort_out(consumer: Consumer, messages: list[Message]) -> tuple[list[Message], list[Reject], int]:
    """Return the messages to decode, those to set aside for having no value, and how many of these to pass over."""
    if consumer.on_null == "delete":
        return messages, [], 0
    wanted = [message for message in messages if message.value() is not None]
    if consumer.on_null == "skip":
        return wanted, [], len(messages) - len(wanted)
    reason = "22004", "the message has no value (on_null => 'dead_letter')"
    return wanted, [Reject(message, *reason) for message in messages if message.value() is None], 0

"""Decoding: from a consumer's messages to rows that its relation can load.

In: messages as Kafka has them. Out: a Payload for the loader, and the messages that can never be loaded.
"""

from __future__ import annotations

from confluent_kafka import Message

from ..model import Consumer, Relation
from . import csv, json, metadata, raw, text
from .payload import Decoded, Misfit, fillable, insertable

_DECODERS = {"text": text.decode, "csv": csv.decode, "json": json.decode, "raw": raw.decode}


def check(consumer: Consumer, relation: Relation) -> None:
    """Raise Misfit where the relation cannot take the consumer's format, whatever is sent."""
    metadata.fields(relation)
    if consumer.format == "raw":
        raw.target(relation)
    elif not fillable(relation):
        has = "only kafka_* columns" if insertable(relation) else "no column that may be written"
        raise Misfit(f"format {consumer.format} needs a column to fill: {relation.qualified} has {has}")


def decode(consumer: Consumer, relation: Relation, messages: list[Message]) -> Decoded:
    """Decode a batch for one consumer. Tombstones (messages without a value) are counted and passed over.

    Raises Misfit as check() does.
    """
    check(consumer, relation)
    fields = metadata.fields(relation)
    valued = [message for message in messages if message.value() is not None]
    legible, rejects = metadata.legible(fields, valued)
    payload, more = _DECODERS[consumer.format](consumer, relation, fields, legible)
    return Decoded(payload, rejects + more, nulls=len(messages) - len(valued))

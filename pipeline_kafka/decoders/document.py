"""Format json, for a relation with one json, jsonb or text column: the document itself, as it was sent.

In: messages that are JSON of any kind. Out: a Payload of a row each.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message

from ..model import Consumer, Relation
from . import syntax, whole
from .metadata import Field
from .names import family
from .payload import Payload, Reject, fillable


def takes_documents(consumer: Consumer, relation: Relation) -> bool:
    """Say whether a relation holds documents, not their fields: one column, of a type that can hold one.

    Who says what unknown fields come to means fields.
    """
    columns = fillable(relation)
    is_one = len(columns) == 1 and family(columns[0].base) in ("json", "jsonb", *whole.TEXTS)
    return is_one and consumer.unknown_fields == "ignore"


def decode(
    consumer: Consumer, relation: Relation, fields: Sequence[Field], messages: Sequence[Message]
) -> tuple[Payload, list[Reject]]:
    """Check that each message is JSON, and write it as one value. PostgreSQL checks json and jsonb again."""
    (column,) = fillable(relation)
    return whole.decode(consumer, relation, fields, column, messages, syntax.document)

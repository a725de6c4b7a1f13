"""Format raw: a message's bytes, whatever they are, into one bytea or text column.

In: any messages. Out: a Payload of a row each.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message

from ..model import Column, Consumer, Relation
from . import whole
from .metadata import Field
from .names import family
from .payload import Misfit, Payload, Reject, fillable


def decode(
    consumer: Consumer, relation: Relation, fields: Sequence[Field], messages: Sequence[Message]
) -> tuple[Payload, list[Reject]]:
    """Write each message as one value; bytes that are no text are refused, here or by the server."""
    return whole.decode(consumer, relation, fields, target(relation), messages)


def target(relation: Relation) -> Column:
    """Return the column that messages go into. Raises Misfit."""
    columns = fillable(relation)
    if len(columns) == 1 and family(columns[0].base) in ("bytea", *whole.TEXTS):
        return columns[0]
    names = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    raise Misfit(
        "format raw needs a relation with one bytea or text column (kafka_* columns aside):"
        f" {relation.qualified} has {names or 'none'}"
    )

"""Format json: an object is a row, an array of objects a row each; the relation's columns are the schema.

In: messages. Out: a Payload, by the way that fits the consumer and its relation: documents whole, COPY where it does
the same as the reference, else the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from confluent_kafka import Message

from ..model import Consumer, Relation
from . import document, fast, keys
from .layout import layout
from .metadata import Field
from .objects import Objects
from .payload import Misfit, Payload, Reject, fillable
from .rows import Rows, read_all


def check(consumer: Consumer, relation: Relation) -> None:
    """Raise Misfit where unknown fields have no column to go into, or the database none of JSON's characters."""
    rest_field(consumer, relation)
    if relation.encoding == "SQL_ASCII":
        raise Misfit("format json does not go into a database of encoding SQL_ASCII, which has no characters")


def decode(
    consumer: Consumer, relation: Relation, fields: Sequence[Field], messages: Sequence[Message]
) -> tuple[Payload, list[Reject]]:
    """Return a payload of the messages that are rows, in their order, and the others with why."""
    if document.takes_documents(consumer, relation):
        return document.decode(consumer, relation, fields, messages)
    rest = rest_field(consumer, relation)
    if rest is not None:
        relation = replace(relation, columns=tuple(column for column in relation.columns if column != rest.column))
    read = Objects(relation, consumer.unknown_fields)
    reference = partial(Rows, keys.writer(consumer, relation, rest), fields, rest)
    if consumer.on_conflict == "error" and rest is None:
        known = layout(relation, strict=consumer.unknown_fields == "error")
        if known is not None:
            return fast.decode(known, read, reference, relation, fields, messages)
    done = read_all(keys.with_tombstones(consumer, relation, read), messages)
    return reference(done.messages, done.rows), done.rejects


def rest_field(consumer: Consumer, relation: Relation) -> Field | None:
    """Return the column that takes the fields which are no column; None where there is none. Raises Misfit."""
    name = consumer.unknown_fields
    if name in ("ignore", "error"):
        return None
    for column in fillable(relation):
        if column.name == name and column.base == "jsonb":
            return Field(column, "pg_catalog.jsonb", lambda message: None)
    raise Misfit(f'{relation.qualified} has no jsonb column "{name}" for unknown_fields to go into')

"""Format raw: a message's bytes, whatever they are, into one bytea or text column.

In: any messages. Out: a CopyPayload.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message

from ..model import Column, Consumer, Relation
from . import text
from .copying import escaped
from .framing import framed
from .metadata import Field
from .names import family
from .payload import Misfit, Payload, Reject, fillable

TEXTS = ("text", "character varying")


def decode(
    consumer: Consumer, relation: Relation, fields: Sequence[Field], messages: Sequence[Message]
) -> tuple[Payload, list[Reject]]:
    """Write each message as one value; bytes that are no text are the server's to refuse."""
    column = target(relation)
    frame = _as_bytea if family(column.base) == "bytea" else as_text
    return framed(relation, fields, [column], messages, text.style("\t", frame))


def target(relation: Relation) -> Column:
    """Return the column that messages go into. Raises Misfit."""
    columns = fillable(relation)
    if len(columns) == 1 and family(columns[0].base) in ("bytea", *TEXTS):
        return columns[0]
    names = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    raise Misfit(
        "format raw needs a relation with one bytea or text column (kafka_* columns aside):"
        f" {relation.qualified} has {names or 'none'}"
    )


def as_text(value: bytes, prefix: bytes) -> bytes:
    """Frame a message as one field of COPY's text format."""
    return prefix + escaped(value)


def _as_bytea(value: bytes, prefix: bytes) -> bytes:
    return prefix + b"\\\\x" + value.hex().encode()

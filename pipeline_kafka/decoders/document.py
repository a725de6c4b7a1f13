"""Format json, for a relation with one json, jsonb or text column: the document itself, as it was sent.

In: messages that are JSON of any kind. Out: a CopyPayload.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message

from ..model import Consumer, Relation
from . import raw, syntax, text
from .framing import framed
from .metadata import Field
from .names import family
from .payload import Payload, Reject, fillable


def takes_documents(relation: Relation) -> bool:
    """Say whether a relation holds documents, not their fields: one column, of a type that can hold one."""
    columns = fillable(relation)
    return len(columns) == 1 and family(columns[0].base) in ("json", "jsonb", *raw.TEXTS)


def decode(
    consumer: Consumer, relation: Relation, fields: Sequence[Field], messages: Sequence[Message]
) -> tuple[Payload, list[Reject]]:
    """Check that each message is JSON, and write it as one value.

    By COPY, whose errors name the line. PostgreSQL checks json and jsonb again as it reads them.
    """
    return framed(relation, fields, fillable(relation), messages, text.style("\t", _frame))


def _frame(value: bytes, prefix: bytes) -> bytes:
    syntax.document(value)
    return raw.as_text(value, prefix)

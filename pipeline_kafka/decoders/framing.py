"""From messages to lines of COPY data: what text, csv, raw and document formats share.

In: messages, and how one is framed. Out: a CopyPayload, and the messages that cannot be framed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import Message

from ..model import Column, Relation
from .copying import CopyPayload
from .metadata import Field, texts
from .payload import Payload, Refused, Reject


class Style(NamedTuple):
    """How a format writes lines.

    ``options`` are COPY's. ``field`` writes one kafka_* value and the delimiter behind it. ``frame`` puts
    such a prefix before each line of a message, leaves out the last line feed, and raises Refused for a
    message that would not stay by itself. ``skew`` is CopyPayload's.
    """

    options: str
    field: Callable[[str | None], bytes]
    frame: Callable[[bytes, bytes], bytes]
    skew: Callable[[bytes], int] = lambda fragment: 0


def framed(
    relation: Relation,
    fields: Sequence[Field],
    columns: Sequence[Column],
    messages: Sequence[Message],
    style: Style,
) -> tuple[Payload, list[Reject]]:
    """Frame messages for a COPY into the kafka_* columns ``fields``, then ``columns``.

    The kafka_* columns come first, so that COPY's own error names the column a short line lacks.
    """
    kept, fragments, rejects = [], [], []
    for message, prefix in zip(messages, _prefixes(fields, messages, style), strict=True):
        try:
            fragments.append(style.frame(message.value() or b"", prefix))
        except Refused as refused:
            rejects.append(Reject(message, refused.sqlstate, str(refused)))
        else:
            kept.append(message)
    columns = [*(field.column for field in fields), *columns]
    return CopyPayload(relation, columns, style.options, kept, fragments, style.skew), rejects


def _prefixes(fields: Sequence[Field], messages: Sequence[Message], style: Style) -> Iterable[bytes]:
    if not fields:
        return [b""] * len(messages)
    values = [map(style.field, texts(field, messages)) for field in fields]
    return map(b"".join, zip(*values, strict=True))

"""From messages to lines of COPY data: what text, csv, raw and document formats share.

In: messages, and how one is framed. Out: a CopyPayload, and the messages that cannot be framed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import Message

from ..model import Column, Relation
from .copying import CopyPayload, pieces
from .metadata import Field, texts
from .payload import Payload, Refused, Reject


class Style(NamedTuple):
    """How a format writes lines.

    ``options`` are COPY's. ``field`` writes one kafka_* value and the delimiter behind it. ``frame`` puts
    such a prefix before each line of a message, leaves out the last line feed, and raises Refused for a
    message that would not stay by itself; None is a message without a line. ``skew`` is CopyPayload's.
    ``special`` are the bytes without which every message is one line as it stands, and frame() would change
    nothing; empty where it always does.
    """

    options: str
    field: Callable[[str | None], bytes]
    frame: Callable[[bytes, bytes], bytes | None]
    skew: Callable[[bytes], int] = lambda fragment: 0
    special: bytes = b""


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
    columns = [*(field.column for field in fields), *columns]
    values = [message.value() or b"" for message in messages]
    starts = prefixes(fields, messages, style)
    if _all_plain(values, style.special):
        lines = [start + value for start, value in zip(starts, values, strict=True)] if fields else values
        return CopyPayload(relation, columns, style.options, messages, lines, style.skew), []
    kept, fragments, rejects = [], [], []
    for message, value, start in zip(messages, values, starts, strict=True):
        try:
            fragment = style.frame(value, start)
        except Refused as refused:
            rejects.append(Reject(message, refused.sqlstate, str(refused)))
            continue
        if fragment is not None:
            kept.append(message)
            fragments.append(fragment)
    return CopyPayload(relation, columns, style.options, kept, fragments, style.skew), rejects


def _all_plain(values: Sequence[bytes], special: bytes) -> bool:
    """Tell whether nothing needs a look: one search of many messages' bytes is far cheaper than one of each."""
    return bool(special) and not any(_has(b"".join(piece), special) for piece in pieces(values))


def _has(text: bytes, special: bytes) -> bool:
    return any(special[place : place + 1] in text for place in range(len(special)))


def prefixes(fields: Sequence[Field], messages: Sequence[Message], style: Style) -> Iterable[bytes]:
    """Return what stands before the lines of each message: its kafka_* values."""
    if not fields:
        return [b""] * len(messages)
    values = [map(style.field, texts(field, messages)) for field in fields]
    return map(b"".join, zip(*values, strict=True))

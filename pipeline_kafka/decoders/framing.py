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
    ``all_plain`` tells of many messages whether each is one line as it stands, so that frame() would change none; it
    may say no where they are.
    """

    options: str
    field: Callable[[str | None], bytes]
    frame: Callable[[bytes, bytes], bytes | None]
    skew: Callable[[bytes], int] = lambda fragment: 0
    all_plain: Callable[[Sequence[bytes]], bool] = lambda values: False


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
    # one search of many messages' bytes is far cheaper than one of each
    if all(map(style.all_plain, pieces(values))):
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


def single_lines(values: Sequence[bytes]) -> bool:
    """Tell whether none of these has a line end or a backslash."""
    together = b" ".join(values)
    return b"\n" not in together and b"\r" not in together and b"\\" not in together


def prefixes(fields: Sequence[Field], messages: Sequence[Message], style: Style) -> Iterable[bytes]:
    """Return what stands before the lines of each message: its kafka_* values."""
    if not fields:
        return [b""] * len(messages)
    values = [map(style.field, texts(field, messages)) for field in fields]
    return map(b"".join, zip(*values, strict=True))

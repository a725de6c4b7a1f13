"""Format text: lines of COPY's text format, passed through.

In: messages of one or more lines. Out: a CopyPayload in which no message ends, joins or swallows another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import Message

from ..model import Consumer, Relation
from .copying import escaped
from .framing import Style, framed, single_lines
from .metadata import Field
from .names import literal
from .payload import Payload, Refused, Reject, fillable

# What needs a look: every other pair that a backslash begins is COPY's own business.
_SUSPECT = re.compile(rb"\\[.\r\n\\]|\\\Z")
_TOKEN = re.compile(
    rb"(?P<end_of_copy>\\\.)|(?P<data>\\[\r\n])|\\[^.\r\n]|(?P<cut>\\\Z)|(?P<line_end>\r\n)|(?P<bare>\r)"
)
_REPLACEMENTS = {b"\\\n": b"\\n", b"\\\r": b"\\r", b"\r\n": b"\n"}
_REASONS = {
    "end_of_copy": 'end-of-copy marker "\\." in the data, where PostgreSQL would drop what follows it;'
    ' write "." for a period, "\\\\." for a backslash and a period',
    "cut": 'the message ends in a lone backslash, which would make its line end data; write "\\\\" for a backslash',
    "bare": 'literal carriage return found in data; write "\\r" for it',
}


def decode(
    consumer: Consumer, relation: Relation, fields: Sequence[Field], messages: Sequence[Message]
) -> tuple[Payload, list[Reject]]:
    """Frame messages for COPY; their values are left for the server to read."""
    way = style(consumer.delimiter, frame, consumer.null_string)._replace(all_plain=single_lines)
    return framed(relation, fields, fillable(relation), messages, way)


def style(delimiter: str, frame: Callable[[bytes, bytes], bytes], null: str | None = None) -> Style:
    """Return COPY's text format with this delimiter, and what stands for NULL unless it is \\N."""
    options = f"FORMAT text, DELIMITER {literal(delimiter)}" + ("" if null is None else f", NULL {literal(null)}")
    return Style(options, partial(_field, delimiter.encode(), b"\\N" if null is None else null.encode()), frame)


def frame(value: bytes, prefix: bytes) -> bytes:
    """Return a message's lines, each behind ``prefix``, without the line feed that ends the last.

    CR LF becomes LF, and a line end that a backslash makes data becomes the two characters COPY writes for
    it, so that each line feed left is the end of a line. An empty message is one empty line.
    Raises Refused for what would end the COPY or reach into the next message.
    """
    if b"\r" in value or (b"\\" in value and _SUSPECT.search(value)):
        value = _TOKEN.sub(_settle, value)
    if b"\n" in value:
        value = value.removesuffix(b"\n")
        if prefix:
            value = value.replace(b"\n", b"\n" + prefix)
    return prefix + value


def _settle(match: re.Match[bytes]) -> bytes:
    if reason := _REASONS.get(match.lastgroup or ""):
        raise Refused("22P04", reason)
    return _REPLACEMENTS.get(match[0], match[0])


def _field(delimiter: bytes, null: bytes, text: str | None) -> bytes:
    """Return a value and the delimiter. COPY compares with what stands for NULL before it undoes escapes."""
    if text is None:
        return null + delimiter
    value = escaped(text.encode(), delimiter)
    if value == null and value:
        value = b"\\x%02x" % value[0] + value[1:]
    return value + delimiter

"""Format csv: rows of COPY's csv format, passed through.

In: messages of one or more rows. Out: a CopyPayload in which no message ends, joins or swallows another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from confluent_kafka import Message

from ..model import Consumer, Relation
from .framing import Style, framed
from .metadata import Field
from .names import literal
from .payload import Payload, Refused, Reject, fillable

_REASONS = {
    "end_of_copy": 'end-of-copy marker "\\." alone on a line, where PostgreSQL would drop what follows it;'
    " quote it to send it as a value",
    "unclosed": "unterminated CSV quoted field: the message ends within quotes",
    "bare": "unquoted carriage return found in data; quote the value that holds it",
}


def decode(
    consumer: Consumer, relation: Relation, fields: Sequence[Field], messages: Sequence[Message]
) -> tuple[Payload, list[Reject]]:
    """Frame messages for COPY; their values are left for the server to read."""
    quote = consumer.quote or '"'
    escape = consumer.escape or quote
    delimiter, null = consumer.delimiter, consumer.null_string or ""
    quotes = Quotes(quote.encode(), escape.encode())
    options = f"DELIMITER {literal(delimiter)}, QUOTE {literal(quote)}, ESCAPE {literal(escape)}, NULL {literal(null)}"
    style = Style(
        f"FORMAT csv, {options}",
        partial(quotes.field, delimiter.encode(), null.encode()),
        quotes.frame_without_header if consumer.header else quotes.frame,
        quotes.skew,
        all_plain=(lambda values: False) if consumer.header else quotes.all_plain,
    )
    return framed(relation, fields, fillable(relation), messages, style)


class Quotes:
    """The quote and escape characters (a byte each), and what is quoted under them.

    COPY looks for the end of a row before it parses fields, and this follows it: outside quotes the quote
    opens; within, the escape takes the next byte along and the quote closes (CopyReadLineText in PostgreSQL's
    copyfromparse.c).
    """

    def __init__(self, quote: bytes, escape: bytes) -> None:
        self.quote = quote
        self.escape = escape
        self._no_marks = bytes(set(range(256)) - {*quote, *b"\n"})
        q, e = re.escape(quote), re.escape(escape)
        within = rb"[^%b]*+" % q if quote == escape else rb"(?:[^%b%b]++|%b.)*+" % (q, e, e)
        self._token = re.compile(
            rb"(?P<end_of_copy>^\\\.(?=\r?\n|\Z))|(?P<quoted>%b%b%b)|(?P<unclosed>%b)" % (q, within, q, q)
            + rb"|(?P<last>\r?\n\Z)|(?P<line_end>\r?\n)|(?P<bare>\r)",
            re.DOTALL | re.MULTILINE,
        )

    def all_plain(self, values: Sequence[bytes]) -> bool:
        """Tell whether each of these is one line with even quotes; see Style."""
        together = b"\n".join(values)
        if b"\r" in together or b"\\" in together or (self.quote != self.escape and self.escape in together):
            return False
        marks = together.translate(None, self._no_marks).split(b"\n")
        return len(marks) == len(values) and not any(len(quotes) % 2 for quotes in set(marks))

    def frame(self, value: bytes, prefix: bytes) -> bytes:
        """Return a message's rows, each behind ``prefix``, without the line feed that ends the last.

        CR LF becomes LF outside quotes and is left alone within. An empty message is one empty line.
        Raises Refused for what would end the COPY or reach into the next message.
        """
        if self._is_plain(value) and not (prefix and b"\n" in value):
            return prefix + value.removesuffix(b"\n")
        return prefix + self._token.sub(partial(self._settle, prefix), value)

    def frame_without_header(self, value: bytes, prefix: bytes) -> bytes | None:
        """Return a message's rows but the first as frame() does; None where there are none. Raises Refused."""
        for match in self._token.finditer(value):
            if match.lastgroup in ("line_end", "last"):
                rest = value[match.end() :]
                return self.frame(rest, prefix) if rest else None
            self._settle(b"", match)
        if not value:
            raise Refused("22P04", "the message is empty: it has no header line")
        return None

    def skew(self, fragment: bytes) -> int:
        """Return by how many lines COPY undercounts a fragment that comes first.

        Until the first row has ended COPY does not know the newline style, and counts the carriage returns
        within quotes in place of the line feeds.
        """
        skew = 0
        for match in self._token.finditer(fragment):
            if match.lastgroup == "line_end":
                break
            skew += match[0].count(b"\n") - match[0].count(b"\r")
        return skew

    def field(self, delimiter: bytes, null: bytes, text: str | None) -> bytes:
        """Return a value as a quoted field, NULL as what stands for it, with the delimiter behind it."""
        if text is None:
            return null + delimiter
        value = text.encode().replace(self.escape, self.escape * 2)
        if self.quote != self.escape:
            value = value.replace(self.quote, self.escape + self.quote)
        return self.quote + value + self.quote + delimiter

    def _is_plain(self, value: bytes) -> bool:
        """Say whether nothing needs a look: the quotes are even, and no escape hides one."""
        if b"\r" in value or b"\\." in value or value.count(self.quote) % 2:
            return False
        return self.quote == self.escape or self.escape not in value

    @staticmethod
    def _settle(prefix: bytes, match: re.Match[bytes]) -> bytes:
        if reason := _REASONS.get(match.lastgroup or ""):
            raise Refused("22P04", reason)
        if match.lastgroup == "quoted":
            return match[0]
        return b"" if match.lastgroup == "last" else b"\n" + prefix

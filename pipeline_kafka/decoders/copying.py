"""Messages as lines of one COPY … FROM STDIN.

In: a fragment of COPY data for each message. Out: a Payload.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate
from typing import Any

import psycopg
from confluent_kafka import Message

from ..model import Column, Relation
from .names import identifier

_PIECE = 1 << 20  # bytes, about: what is joined at a time
_LAST_NAME = re.compile(r'(?:"((?:[^"]|"")*)"|([^".]+))$')


def escaped(value: bytes, delimiter: bytes = b"\t") -> bytes:
    """Return bytes as one field of COPY's text format."""
    value = value.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return value.replace(delimiter, b"\\" + delimiter)


class CopyPayload:
    """A Payload that COPY loads.

    ``fragments`` holds the lines of each message without the last line feed. Every line feed in them must
    be one that COPY counts as a line, for that is how an error finds its message. ``skew`` tells by how many
    lines COPY undercounts where this fragment comes first.
    """

    def __init__(
        self,
        relation: Relation,
        columns: Iterable[Column],
        options: str,
        messages: Sequence[Message],
        fragments: Sequence[bytes],
        skew: Callable[[bytes], int],
    ) -> None:
        names = ", ".join(identifier(column.name) for column in columns)
        self.messages = messages
        self._relation = relation.qualified
        self._into = f"({names}) FROM STDIN WITH ({options}, ENCODING 'UTF8')"
        self._fragments = fragments
        self._skew = skew

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def statement(self) -> bytes:
        """Return the COPY, for which load() sends the lines."""
        return f"COPY {self._relation} {self._into}".encode()

    def into(self, relation: Relation) -> CopyPayload:
        """Return the same lines for another relation of the same shape."""
        other = copy(self)
        other._relation = relation.qualified
        return other

    def load(self, cursor: psycopg.Cursor[Any], start: int, stop: int) -> int:
        """Write messages[start:stop]; see Payload."""
        with cursor.copy(self.statement) as data:
            for piece in pieces(self._fragments[start:stop]):
                data.write(b"\n".join([*piece, b""]))
        return cursor.rowcount

    def locate(self, error: psycopg.Error, start: int) -> int | None:
        """Return the index of the message whose line COPY names; see Payload."""
        line = _line(error.diag.context or "", self._name)
        if line is None or start >= len(self.messages):
            return None
        before = self._last_lines[start - 1] if start else 0
        # At least 1: an error within the first row comes before COPY has counted all that skew allows for.
        line = max(1, line + self._skew(self._fragments[start]))
        index = bisect_left(self._last_lines, before + line)
        return index if index < len(self.messages) else None

    def unreadable(self, cursor: psycopg.Cursor[Any], error: psycopg.Error, start: int, stop: int) -> bool:
        """Tell whether a value is to blame: COPY names a column only while it reads one; see Payload."""
        place = rf"^COPY {re.escape(self._name)}, line \d+, column "
        return re.search(place, error.diag.context or "", re.MULTILINE) is not None

    @property
    def _name(self) -> str:
        return _last_name(self._relation)

    @cached_property
    def _last_lines(self) -> list[int]:
        """The number of each message's last line, counted from 1 at the first message."""
        return list(accumulate(fragment.count(b"\n") + 1 for fragment in self._fragments))


def pieces(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Part values into runs of about _PIECE bytes: what works on all bytes of a run at once copies no more."""
    total = sum(map(len, values))
    step = max(1, _PIECE * len(values) // (total + 1))
    for first in range(0, len(values), step):
        yield values[first : first + step]


def _last_name(qualified: str) -> str:
    """Return the relation's own name, out of a qualified and quoted one: COPY's errors give only that."""
    match = _LAST_NAME.search(qualified)
    assert match, qualified
    return match[2] or match[1].replace('""', '"')


def _line(context: str, name: str) -> int | None:
    """Return N of "COPY name, line N, …", in any language of the server: the first number after the name.

    The last such line of the context counts: those before it tell of triggers that ran within.
    """
    pattern = re.compile(re.escape(name) + r"\D*?(\d{1,18})")
    for text in reversed(context.splitlines()):
        if match := pattern.search(text):
            return int(match[1])
    return None

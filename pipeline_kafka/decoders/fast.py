"""The fast way for JSON: messages become lines of COPY text, by operations on many of them at once.

In: messages. Out: CopyPayloads and, in their places among them, what only the reference (objects.py) can take: arrays
of rows, values for arrays and composites, and rows that name a column with a default where their neighbours do not.

msgspec checks the syntax and cuts the values out (layout.py); tokens.py says why COPY then makes the same of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, groupby, repeat
from operator import attrgetter, or_
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Message

from ..model import Column, Relation
from . import text, tokens, utf8
from .copying import CopyPayload, pieces
from .framing import prefixes
from .layout import NULL, Layout
from .metadata import Field
from .payload import Payload, Refused, Reject
from .rows import Reader, Row
from .series import Series

SHORT = 100  # messages: a run that is shorter is not worth a statement of its own

_STYLE = text.style("\t", text.frame)

Reference = Callable[[Sequence[Message], Sequence[list[Row]]], Payload]
Shape = tuple[bool, ...]  # which of the columns with a default an object names


class Cut(NamedTuple):
    """Messages, what each is (an object cut up, or rows for the reference), and which tokens.lines() looks at apart."""

    messages: Sequence[Message]
    entries: Sequence[Any]
    special: Sequence[bool]


class Run(NamedTuple):
    """Messages for one statement: a line of COPY each, for these columns; or without columns, for the reference.

    That is given the rows which were read already.
    """

    columns: tuple[Column, ...]
    messages: Sequence[Message]
    made: Sequence[Any]


def decode(
    known: Layout,
    read: Reader,
    reference: Reference,
    relation: Relation,
    fields: Sequence[Field],
    messages: Sequence[Message],
) -> tuple[Payload, list[Reject]]:
    """Return a payload of the messages in their order, and those that ``read``, the reference's reader, refuses."""
    values = [message.value() or b"" for message in messages]
    runs: list[Run] = []
    rejects: list[Reject] = []
    start = 0
    for piece in pieces(values):
        cut, refused = _cut(known, read, relation.encoding, messages[start : start + len(piece)], piece)
        runs += _runs(known, cut)
        rejects += refused
        start += len(piece)
    payloads = [
        _copied(relation, fields, run) if run.columns else reference(run.messages, _rows(run, read))
        for run in _joined(runs)
    ]
    return payloads[0] if len(payloads) == 1 else Series(payloads), rejects


def _cut(
    known: Layout, read: Reader, encoding: str, messages: Sequence[Message], values: Sequence[bytes]
) -> tuple[Cut, list[Reject]]:
    """Decode each message; where it is not plainly an object, let ``read`` say what it is."""
    together = b" ".join(values)
    entries, odd = _parse(known.decode, values)
    if not _is_plain(together, encoding):
        odd = sorted({*odd, *(index for index, value in enumerate(values) if not _is_plain(value, encoding))})
    rejects = []
    for index in odd:
        try:
            entries[index] = read(messages[index])
        except Refused as refused:
            entries[index] = None
            rejects.append(Reject(messages[index], refused.sqlstate, str(refused)))
    cut = Cut(messages, entries, tokens.special(values, together))
    if rejects:
        kept = [entry is not None for entry in entries]
        cut = Cut(*(list(compress(part, kept)) for part in cut))
    return cut, rejects


def _parse(decode: Callable[[bytes], Any], values: Sequence[bytes]) -> tuple[list[Any], list[int]]:
    """Decode values, as many in one go as can be; return the numbers of those that cannot beside them."""
    objects: list[Any] = []
    odd: list[int] = []
    rest = iter(values)
    while len(objects) < len(values):
        try:
            objects.extend(map(decode, rest))
        except (msgspec.DecodeError, RecursionError):
            odd.append(len(objects))
            objects.append(None)
    return objects, odd


def _is_plain(value: bytes, encoding: str) -> bool:
    """Tell, by a look that is quick and never says so wrongly, whether JSON is text that the database can hold.

    Where its encoding is not UTF8 the server must say which characters it has, also in fields that are no column.
    """
    is_escaped = b"\\" in value  # far quicker to find than what may follow it
    if encoding != "UTF8":
        return value.isascii() and not (is_escaped and b"\\u" in value)
    return not (is_escaped and b"\\u0000" in value) and (value.isascii() or utf8.is_utf8(value))


def _runs(known: Layout, cut: Cut) -> Iterator[Run]:
    """Part messages where what one statement can take ends."""
    start = 0
    for shape, run in groupby(_shapes(known, cut.entries)):
        stop = start + len(list(run))
        entries = cut.entries[start:stop]
        named = [] if shape is None else [source for source in known.sources if source.is_named(entries)]
        made = tokens.lines(named, entries, cut.special[start:stop]) if named else entries
        yield Run(tuple(source.column for source in named), cut.messages[start:stop], made)
        start = stop


def _shapes(known: Layout, entries: Sequence[Any]) -> Iterable[Shape | None]:
    """Return each object's shape; None for what only the reference can take."""
    is_mixed = list in set(map(type, entries))
    objects = [known.blank if type(entry) is list else entry for entry in entries] if is_mixed else entries
    named = [map(bool, source.tokens(objects)) for source in known.defaulted]
    shapes: Iterable[Shape] = zip(*named, strict=True) if named else repeat((), len(objects))
    if not is_mixed and not known.nested:
        return shapes
    odd = [type(entry) is list for entry in entries]
    for source in known.nested:
        odd = list(map(or_, odd, (bool(token) and token != NULL for token in source.tokens(objects))))
    return (None if is_odd else shape for is_odd, shape in zip(odd, shapes, strict=True))


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Join what goes together; the reference takes what is too short for a statement of its own."""
    joined = [_join(columns, some) for columns, some in groupby(runs, attrgetter("columns"))]
    if len(joined) == 1:
        return joined
    longer = (run if len(run.messages) >= SHORT else run._replace(columns=()) for run in joined)
    return [_join(columns, some) for columns, some in groupby(longer, attrgetter("columns"))]


def _join(columns: tuple[Column, ...], runs: Iterable[Run]) -> Run:
    _, messages, made = zip(*runs, strict=True)
    if len(messages) == 1:
        return Run(columns, messages[0], made[0])
    return Run(columns, list(chain.from_iterable(messages)), list(chain.from_iterable(made)))


def _copied(relation: Relation, fields: Sequence[Field], run: Run) -> Payload:
    lines = run.made
    if fields:
        before = prefixes(fields, run.messages, _STYLE)
        lines = [prefix + line for prefix, line in zip(before, lines, strict=True)]
    columns = [*(field.column for field in fields), *run.columns]
    return CopyPayload(relation, columns, _STYLE.options, run.messages, lines, _STYLE.skew)


def _rows(run: Run, read: Reader) -> list[list[Row]]:
    return [made if type(made) is list else read(message) for message, made in zip(run.messages, run.made, strict=True)]

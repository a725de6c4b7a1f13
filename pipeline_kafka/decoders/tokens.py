"""From JSON to COPY: the values of objects, taken as they stand, become lines of COPY's text format.

In: objects cut out of messages that were checked to be JSON, in UTF-8 and without \\u0000. Out: a line for each.

The reference is json_to_recordset(). To the input function of a column's type it gives a string without its quotes and
escapes, and anything else as it stands; for json and jsonb a string is a string still. COPY gives the same function the
text of a field, so nothing is parsed here.

Operations on many tokens at once are far cheaper than one on each. They rest on this: JSON has no control characters
but white space between tokens; a token that ends in a quote is a string, and one that ends in an l is null; and COPY's
text format has JSON's own escapes, but for three.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import reduce
from itertools import compress, repeat
from operator import attrgetter, not_, or_
from typing import Any

import msgspec

from .copying import escaped
from .layout import Source

Tokens = Sequence[msgspec.Raw]

_STRING_ESCAPED = re.compile(rb'\n"[^\n]*\\')
_NESTED_ESCAPED = re.compile(rb"\n[\[{][^\n]*\\")
_UNICODE = re.compile(rb"(?:\\u[0-9A-Fa-f]{4})+")
_string = msgspec.json.Decoder(str).decode


def special(values: Sequence[bytes], together: bytes) -> Sequence[bool]:
    """Tell which messages have bytes that make lines() look at them apart; empty where none has.

    ``together`` is all of them, to be searched at once.
    """
    there = [byte for byte in (b"\\", b"\t", b"\n", b"\r") if byte in together]
    marks = ([byte in value for value in values] for byte in there)
    return reduce(lambda some, more: list(map(or_, some, more)), marks) if there else ()


def lines(sources: Sequence[Source], objects: Sequence[Any], special: Sequence[bool]) -> list[bytes]:
    """Return a line for each object, of the columns that ``sources`` are of; ``special`` is as special() has it."""
    if sum(special) * 4 > len(objects) or any(map(_has_strings, sources, repeat(objects))):
        return _by_column(sources, objects)
    if not any(special):
        return _compact(sources, objects)
    plain = iter(_compact(sources, list(compress(objects, map(not_, special)))))
    other = iter(_by_column(sources, list(compress(objects, special))))
    return [next(other if is_special else plain) for is_special in special]


def _has_strings(source: Source, objects: Sequence[Any]) -> bool:
    """Tell whether a column of json or jsonb has strings, whose quotes must stay."""
    return source.column.kind == "json" and b'\n"' in _between_line_feeds(source.tokens(objects))


def _compact(sources: Sequence[Source], objects: Sequence[Any]) -> list[bytes]:
    """Return lines, where no byte is special, and strings are no documents: all values at once."""
    rows = zip(*(map(attrgetter(source.name), objects) for source in sources), strict=True)
    text = b"\n".join((b"", *map(b"\t".join, rows), b""))
    if b"null" in text:
        text = text.replace(b"null\t", b"\\N\t").replace(b"null\n", b"\\N\n")
    if b"{" not in text and b"[" not in text:
        text = text.translate(None, b'"')
    else:  # quotes may be within objects and arrays
        text = text.replace(b'\t"', b"\t").replace(b'\n"', b"\n").replace(b'"\t', b"\t").replace(b'"\n', b"\n")
    return text[1:-1].split(b"\n")


def _by_column(sources: Sequence[Source], objects: Sequence[Any]) -> list[bytes]:
    """Return lines, whatever the values are: a column at once."""
    columns = [(_documents if s.column.kind == "json" else _scalars)(s.tokens(objects)) for s in sources]
    return list(map(b"\t".join, zip(*columns, strict=True)))


def _scalars(tokens: Tokens) -> list[bytes]:
    """Return the fields of a column whose type reads JSON's values as text."""
    text = _between_line_feeds(tokens)
    is_escaped = b"\\" in text
    if not _parted(text, tokens) or (is_escaped and _NESTED_ESCAPED.search(text)):
        return list(map(_scalar, tokens))
    text = text.replace(b"null\n", b"\\N\n")
    if b'"' in text:
        text = text.replace(b'\n"', b"\n").replace(b'"\n', b"\n")
    return (_unescaped(text) if is_escaped else text)[1:-1].split(b"\n")


def _documents(tokens: Tokens) -> list[bytes]:
    """Return the fields of a column of type json or jsonb."""
    text = _between_line_feeds(tokens)
    is_escaped = b"\\" in text
    if not _parted(text, tokens) or (is_escaped and _STRING_ESCAPED.search(text)):
        return list(map(_document, tokens))
    text = text.replace(b"\\", b"\\\\") if is_escaped else text
    return text.replace(b"null\n", b"\\N\n")[1:-1].split(b"\n")


def _between_line_feeds(tokens: Tokens) -> bytes:
    return b"\n".join((b"", *tokens, b""))


def _parted(text: bytes, tokens: Tokens) -> bool:
    """Tell whether line feeds only part tokens, and no other white space is there to be escaped."""
    return b"\t" not in text and b"\r" not in text and text.count(b"\n") == len(tokens) + 1


def _unescaped(text: bytes) -> bytes:
    """Turn the escapes of JSON strings into COPY's: all but three are the same already."""
    text = text.replace(b"\\\\", b"\x01")  # from here on a backslash begins an escape
    text = text.replace(b'\\"', b'"').replace(b"\\/", b"/")
    if b"\\u" in text:
        text = _UNICODE.sub(_characters, text)
    return text.replace(b"\x01", b"\\\\")


def _characters(match: re.Match[bytes]) -> bytes:
    return escaped(_string(b'"%b"' % match[0]).encode()).replace(b"\x01", b"\\x01")


def _scalar(token: msgspec.Raw) -> bytes:
    value = bytes(token)
    if value == b"null":
        return b"\\N"
    return _unescaped(value[1:-1]) if value.startswith(b'"') else escaped(value)


def _document(token: msgspec.Raw) -> bytes:
    """A string is written as the server would write it (escape_json() in json.c), which is as Python does."""
    value = bytes(token)
    if value == b"null":
        return b"\\N"
    if value.startswith(b'"') and b"\\" in value:
        value = json.dumps(_string(value), ensure_ascii=False).encode()
    return escaped(value)

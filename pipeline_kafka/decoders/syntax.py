"""Is it JSON, and what is in it?

In: the bytes of one message. Out: its objects, or Refused with the reason and, where known, the place.

msgspec is as strict as PostgreSQL's own parser, which the tests hold it to, except that it passes over
strings without asking whether they are UTF-8: that is asked apart.
"""

from __future__ import annotations

import json
import re

import msgspec

from . import utf8
from .payload import Refused

Object = dict[str, msgspec.Raw]
_object = msgspec.json.Decoder(Object).decode
_objects = msgspec.json.Decoder(list[Object]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_anything = msgspec.json.Decoder(msgspec.Raw).decode

_ZERO = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_SPACE = b" \t\n\r"
_KINDS = {ord("{"): "an object", ord("["): "an array", ord('"'): "a string", ord("n"): "null"}
_KINDS |= {ord("t"): "a boolean", ord("f"): "a boolean"}


def document(value: bytes) -> None:
    """Raise Refused unless ``value`` is JSON of any kind."""
    try:
        _anything(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise reason(value, error) from None
    if not value.isascii():
        check_utf8(value)


def rows(value: bytes) -> list[tuple[bytes, Object]]:
    """Return each object of a message, as it stands and by field: one object, or an array of them.

    Raises Refused for anything else.
    """
    try:
        if value.startswith(b"{") or not is_array(value):
            return [(value, _object(value))]
        return list(zip(map(bytes, _elements(value)), _objects(value), strict=True))
    except (msgspec.DecodeError, RecursionError) as error:
        raise reason(value, error) from None


def is_array(value: bytes) -> bool:
    """Say whether a message is an array, if it is JSON."""
    return value.lstrip(_SPACE).startswith(b"[")


def check_no_zero(value: bytes) -> None:
    """Raise Refused where JSON has an escape for the zero character, anywhere, as PostgreSQL does."""
    if b"\\u0000" in value and _ZERO.search(value):
        raise Refused("22P05", "unsupported Unicode escape sequence: \\u0000 cannot be converted to text")


def check_utf8(value: bytes) -> None:
    """Raise Refused unless ``value`` is UTF-8."""
    utf8.check(value, "the message", remedy="JSON is sent as UTF-8")


def reason(value: bytes, error: Exception) -> Refused:
    """Say why msgspec refused a message: it is not UTF-8, not JSON, or not of the kind that is a row."""
    try:
        check_utf8(value)
        if isinstance(error, msgspec.ValidationError):  # it does not look further then
            document(value)
            return Refused("22P02", f"{_misfit(value)} is not a row: send an object, or an array of objects")
    except Refused as refused:
        return refused
    if not value.strip(_SPACE):
        return Refused("22P02", "the message is empty, which is not JSON")
    if isinstance(error, RecursionError):
        return Refused("54001", "JSON nested too deeply: a worker takes about 900 levels")
    return Refused("22P02", f"invalid JSON: {_syntax_error(value, str(error))}")


def _syntax_error(value: bytes, error: str) -> str:
    """Return msgspec's words without its preamble.

    It says "truncated" also of half a surrogate pair, for it would read the other half.
    """
    if "truncated" not in error:
        return error.removeprefix("JSON is malformed: ")
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return f"cut off at byte {len(value)}"
    return "an escape for half of a surrogate pair, such as \\ud800, which is no character"


def _misfit(value: bytes) -> str:
    """Name what stands where an object should: the message, or an element of its array."""
    if not is_array(value):
        return _kind(value)
    elements = [bytes(element) for element in _elements(value)]
    wrong = next((n for n, element in enumerate(elements) if not element.startswith(b"{")), 0)
    return f"{_kind(elements[wrong])} (element {wrong + 1} of the array)"


def _kind(value: bytes) -> str:
    return _KINDS.get(value.lstrip(_SPACE)[0], "a number")

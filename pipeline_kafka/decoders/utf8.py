"""Is it text PostgreSQL can hold?

In: bytes from a message. Out: nothing, or Refused with the place.
"""

from __future__ import annotations

from .payload import Refused


def check(value: bytes, what: str, remedy: str) -> None:
    """Raise Refused (22021, as the server would) unless ``value`` is UTF-8 without a zero byte."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        place = f"byte 0x{value[error.start]:02x} at position {error.start}"
        raise Refused("22021", f"{what} is not UTF-8: {place}; {remedy}") from None
    if "\0" in text:
        raise Refused("22021", f"{what} has a zero byte at position {value.index(0)}; {remedy}")


def is_utf8(value: bytes) -> bool:
    """Say whether ``value`` is UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True

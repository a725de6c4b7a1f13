"""psycopg's placeholders as the server's own, for those who speak to it without psycopg.

In: a statement with %s or %(name)s, and its parameters. Out: one with $1, $2, …, and their texts.
"""

from __future__ import annotations

import re
from functools import lru_cache

from psycopg.types.json import Json

_PLACEHOLDER = re.compile(r"%(?:(?P<percent>%)|s|\((?P<name>\w+)\)s)")


@lru_cache(maxsize=256)
def numbered(query: bytes | str, form: str = "$%d") -> tuple[str, tuple[str, ...]]:
    """Return a statement with a number for each %s and each name, and the names in the order of their numbers.

    ``form`` is how a number is written.
    """
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        if match["percent"]:
            return "%"
        name = match["name"] or f"{len(numbers) + 1}"
        return form % numbers.setdefault(name, len(numbers) + 1)

    text = _PLACEHOLDER.sub(number, query.decode() if isinstance(query, bytes) else query)
    return text, tuple(numbers)


def as_text(value: object) -> str | None:
    """Return a parameter in the text form that the server reads; None is NULL."""
    if isinstance(value, Json):
        return value.obj.decode() if isinstance(value.obj, bytes) else str(value.obj)
    return None if value is None else str(value)

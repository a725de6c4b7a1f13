"""Identifiers, literals and types as SQL that means the same under any settings.

In: names and format_type()'s output under search_path = pg_catalog. Out: SQL text.
"""

from __future__ import annotations

import re

# Types that SQL spells with words of its grammar: no search_path can redirect those.
_GRAMMAR = re.compile(
    r"(?:bigint|bit|boolean|character|double precision|integer|interval|numeric|real|smallint|time|timestamp)"
    r"\b"
)
_QUALIFIED = re.compile(r'(?:"(?:[^"]|"")*"|[^".(\[ ]+)\.')
_MODIFIER = re.compile(r'("(?:[^"]|"")*")|\([^)]*\)')
# Without a length these two words mean a length of 1; the names in pg_type mean none.
_UNBOUNDED = {"bit": '"bit"', "character": "bpchar"}


def identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a string constant that standard_conforming_strings does not change."""
    return "E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def family(type: str) -> str:
    """Return a type's name without its modifier: ``character varying(3)`` is ``character varying``."""
    return _MODIFIER.sub(lambda match: match[1] or "", type)


def unbounded(type: str) -> str:
    """Return a type, qualified, without its modifier, for a cast that neither cuts nor rounds."""
    name, brackets, rest = family(type).partition("[")
    return qualified(_UNBOUNDED.get(name, name) + brackets + rest)


def qualified(type: str) -> str:
    """Return a type with its schema; without one it is a word of the grammar, or it lives in pg_catalog."""
    if _GRAMMAR.match(type) or _QUALIFIED.match(type):
        return type
    return "pg_catalog." + type

"""What SQL functions written in PL/Python call. ``plpy`` is an argument, so that all of it runs outside a server too.

In: the arguments of the SQL functions. Out: what those functions answer with.
"""

from __future__ import annotations

from typing import Any

from . import errors
from .asking import ask
from .here import load_replay, read_replay
from .retry import Counts, retry

__all__ = ["ask", "default_error_actions", "load_dead_letters", "load_replay", "read_replay"]


def load_dead_letters(
    plpy: Any, id: int | None, topic: str | None, relation: str | None, sqlstate: str | None, most: int | None
) -> Counts:
    """Try dead letters again: see retry.retry()."""
    return retry(plpy, id, topic, relation, sqlstate, most)


def default_error_actions() -> list[tuple[str | None, str, str]]:
    """Return (code or class, action, meaning) of each default, and with None in place of a code that of all others."""
    rows = [(code, default.action.value, default.meaning) for code, default in errors.DEFAULTS.items()]
    return [*rows, (None, errors.OTHERS.action.value, errors.OTHERS.meaning)]

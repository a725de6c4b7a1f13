"""What SQL functions written in PL/Python call. ``plpy`` is an argument, so that all of it runs outside a server too.

In: the arguments of the SQL functions. Out: what those functions answer with.
"""

from __future__ import annotations

from typing import Any

from . import catalog, errors
from .asking import ask
from .decoders import check
from .decoders.payload import Misfit
from .here import load_replay, read_replay
from .retry import Counts, retry
from .session import Session

__all__ = ["ask", "default_error_actions", "load_dead_letters", "load_replay", "misfit", "read_replay"]


def load_dead_letters(
    plpy: Any, id: int | None, topic: str | None, relation: str | None, sqlstate: str | None, most: int | None
) -> Counts:
    """Try dead letters again: see retry.retry()."""
    return retry(plpy, id, topic, relation, sqlstate, most)


def misfit(plpy: Any, consumer_id: int) -> str | None:
    """Return why a consumer's relation cannot take what that is to do; None where it can."""
    consumer, relation = catalog.target(Session(plpy).read, consumer_id)
    assert relation is not None  # it was looked at in this transaction
    try:
        check(consumer, relation)
    except Misfit as misfit:
        return str(misfit)
    return None


def default_error_actions() -> list[tuple[str | None, str, str]]:
    """Return (code or class, action, meaning) of each default, and with None in place of a code that of all others."""
    rows = [(code, default.action.value, default.meaning) for code, default in errors.DEFAULTS.items()]
    return [*rows, (None, errors.OTHERS.action.value, errors.OTHERS.meaning)]

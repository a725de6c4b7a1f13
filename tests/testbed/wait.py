"""Wait for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.1


def wait_until(predicate: Callable[[], T], what: str, timeout: float = 60, accept: Callable[[T], object] = bool) -> T:
    """Call ``predicate`` until ``accept`` likes its value (by default: it is true), and return that value.

    ``what`` ends the sentence "waited N s until …"; ``timeout`` is in seconds. What the predicate raises
    is not caught. Raises TimeoutError that says what was waited for and the last value.
    """
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while not accept(value := predicate()):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {timeout:g} s until {what}; last value: {value!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    return value

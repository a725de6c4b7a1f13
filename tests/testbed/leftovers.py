"""What must not be left behind when this process ends: first the children go, then the folders."""

from __future__ import annotations

import atexit
import shutil
import weakref
from pathlib import Path
from typing import Protocol


class Child(Protocol):
    """A process that can be ended."""

    def end(self) -> None:
        """End it by all means, and return when it is gone."""


_children: weakref.WeakSet[Child] = weakref.WeakSet()
_folders: list[Path] = []


def end_at_exit(child: Child) -> None:
    """End ``child`` when this process ends in order; a death signal is for the other ways."""
    _children.add(child)


def remove_at_exit(folder: Path) -> None:
    """Remove ``folder`` when this process ends in order."""
    _folders.append(folder)


@atexit.register
def _clean_up() -> None:
    for child in list(_children):
        child.end()
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)

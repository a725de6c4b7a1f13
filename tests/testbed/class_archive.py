"""A JVM class-data archive of the broker's classes: it halves the time of a start (JEP 350)."""

from __future__ import annotations

import os
from pathlib import Path

from tests.testbed.java import build


class ClassArchive:
    """Kept beside ``jars``, for the Java runtime in use.

    The first broker that ends in order writes it. A JVM that it doesn't fit goes on without it.
    """

    def __init__(self, jars: Path) -> None:
        self._path = jars.with_name(f"{jars.name}-{build()}.jsa")
        self._partial = self._path.with_suffix(f".{os.getpid()}")

    def options(self, write: bool = False) -> list[str]:
        """JVM options that read the archive, where there is one, else ``write`` it when the JVM ends."""
        if self._path.exists():
            return ["-Xshare:auto", f"-XX:SharedArchiveFile={self._path}"]
        return [f"-XX:ArchiveClassesAtExit={self._partial}"] if write else ["-Xshare:auto"]

    def adopt(self) -> None:
        """Make what a JVM wrote at its exit the archive for all."""
        if self._partial.exists():
            self._partial.rename(self._path)

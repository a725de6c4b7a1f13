"""A Java runtime for the broker."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

# Apache Kafka 4 brokers need Java 17 (its docs, "Java Version").
OLDEST = 17


@cache
def java() -> str:
    """The path of a java of version 17 or newer. Raises RuntimeError when there is none."""
    path = shutil.which("java")
    if path is None or _version(path) < OLDEST:
        raise RuntimeError(f"no Java {OLDEST} or newer on PATH: run tests/bootstrap")
    return path


@cache
def build() -> str:
    """The exact build of that java, such as 17.0.15+6-Debian-1deb12u1."""
    return _find(r"Runtime Environment.*\(build ([^), ]+)", java(), "unknown")


def _version(path: str) -> int:
    return int(_find(r'version "(\d+)', path, "0"))


def _find(pattern: str, path: str, otherwise: str) -> str:
    """What the pattern's group matches in what ``java -version`` says."""
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=True).stderr
    match = re.search(pattern, said)
    return match[1] if match else otherwise

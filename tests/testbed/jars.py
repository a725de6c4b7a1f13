"""Apache Kafka's jars from Maven, fetched once into a cache that all checkouts share."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.process import run

POMS = Path(__file__).resolve().parent.parent / "jars"
KAFKA_VERSION = "4.2.0"
OLD_KAFKA_VERSION = "3.9.1"  # the last one that runs with ZooKeeper; its jars bring one
# With the plugin's version named, Maven asks for no metadata.
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def cache_folder() -> Path:
    """PIPELINE_KAFKA_CACHE, else the user's cache folder; it exists afterwards."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("PIPELINE_KAFKA_CACHE") or Path(home) / "pipeline_kafka")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with all jars of an Apache Kafka version, fetched if need be.

    Raises RuntimeError with Maven's output when they can't be had.
    """
    jars = cache_folder() / f"kafka-{version}"
    if not jars.exists():
        with _lock(jars.parent / f"{jars.name}.lock"):
            if not jars.exists():
                _fetch(POMS / "pom.xml", {"kafka.version": version}, jars)
    return jars


def _fetch(pom: Path, properties: dict[str, str], target: Path) -> None:
    """Copy a pom's dependencies into ``target``, which appears whole or not at all."""
    partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        defines = [f"-D{name}={value}" for name, value in properties.items()]
        run(["mvn", "-B", "-q", "-f", pom, COPY, f"-DoutputDirectory={partial}", *defines])
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Keep other processes out; the kernel lets go when the holder dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

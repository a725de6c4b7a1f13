"""The server and the broker that a whole run is measured on.

In: a folder and a scale. Out: databases with the extension, and topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.broker import Broker
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database

FULL = 1_000_000  # rows of a run that counts: two workers need a second of it to share the partitions
PARTITIONS = 8

# A server as one would run it. Commit timestamps let the database itself say when each batch became visible.
SERVER: dict[str, str | int] = {
    "fsync": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "30min",
    "track_commit_timestamp": "on",
    "log_min_messages": "warning",
}
BROKER: dict[str, str | int] = {"log.cleaner.enable": "false"}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured, all of it in proportion to the rows asked for."""

    rows: int

    def part(self, full: float, least: float) -> float:
        """Return what ``full`` of a run of FULL rows comes down to, but not under ``least`` nor over ``full``."""
        return max(least, full * min(1.0, self.rows / FULL))


class Stage:
    """A running server and broker in ``folder``, with scale; a context that ends both."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.folder = folder
        self.scale = scale
        self.cluster = Cluster(folder / "server", settings=SERVER)
        self.broker = Broker(folder / "broker", settings=BROKER, heap="1g", fast_start=False)

    def __enter__(self) -> Stage:
        self.cluster.start()
        try:
            self.broker.start()
        except BaseException:
            self.cluster.stop("immediate")
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()
        self.cluster.stop("immediate")

    @property
    def broker_pid(self) -> int:
        """The broker's process id."""
        assert self.broker.process is not None
        return self.broker.process.pid

    @contextmanager
    def database(self, name: str) -> Iterator[Database]:
        """A database with the extension, linked to the broker; dropped at the end, when its workers have left."""
        database = Database(self.cluster, name).create()
        try:
            with database.connect() as connection:
                connection.execute("SELECT pipeline_kafka.add_broker(%s)", [self.broker.bootstrap])
            yield database
        finally:
            database.drop()

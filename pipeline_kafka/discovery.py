"""Keeps the brokers that ZooKeepers list in the catalog as they are there: one worker of a database does it for all.

In: rows of pipeline_kafka.zookeepers. Out: rows of brokers, and how it went.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from . import registered
from .log import logger
from .zookeeper import ZooKeeper, ZooKeeperError, connect

LOCK_CLASS = 1801545324  # next to the class of the workers' slots
LOCK = 1  # who holds it reads ZooKeeper
WAIT = 5.0  # seconds a ZooKeeper is given to answer
REFRESH = 2.0  # seconds between readings, and until one that is away is tried again

_LOCK = "SELECT pg_try_advisory_lock(%s, %s)"
_REFRESH = "SELECT pipeline_kafka.refresh_brokers(%s, %s, %s)"


class Source(NamedTuple):
    """A ZooKeeper, and which listener of each broker is taken."""

    address: str
    protocol: str


class Found(NamedTuple):
    """What a ZooKeeper lists, or why it cannot be read."""

    hosts: list[str]
    error: str | None = None


class Discovery:
    """Reads the ZooKeepers that are configured, each in a thread of its own. ``wake`` is called when one has news."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._chosen = False
        self._watches: dict[Source, Watch] = {}

    def follow(self, connection: psycopg.Connection[Any], sources: set[Source]) -> None:
        """Read just these from now on, where this worker is the one that does."""
        if sources and not self._chosen:
            row = connection.execute(_LOCK, (LOCK_CLASS, LOCK)).fetchone()
            self._chosen = row is not None and bool(row[0])
        wanted = sources if self._chosen else set()
        for source in self._watches.keys() - wanted:
            self._watches.pop(source).close()
        for source in wanted - self._watches.keys():
            self._watches[source] = Watch(source, self._wake)

    def tell(self, connection: psycopg.Connection[Any]) -> None:
        """Put what was found since the last call into the catalog."""
        for source, watch in self._watches.items():
            found = watch.take()
            if found is not None:
                connection.execute(_REFRESH, (source.address, found.hosts, found.error))

    def close(self) -> None:
        """End the threads, without waiting for them."""
        for watch in self._watches.values():
            watch.close()


class Watch:
    """A thread that reads one ZooKeeper again and again, until close()."""

    def __init__(self, source: Source, wake: Callable[[], object]) -> None:
        self._source = source
        self._wake = wake
        self._found: Found | None = None
        self._ending = threading.Event()
        threading.Thread(target=self._run, name=f"discovery {source.address}", daemon=True).start()

    def close(self) -> None:
        """Ask it to end."""
        self._ending.set()

    def take(self) -> Found | None:
        """Return what was found since the last call; None where nothing was."""
        found, self._found = self._found, None
        return found

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                with connect(self._source.address, WAIT) as keeper:
                    self._read(keeper)
            except Exception as error:  # whatever is wrong with what is there: the brokers stay as they are
                hint = error.hint if isinstance(error, ZooKeeperError) else None
                self._tell(Found([], "\n".join(filter(None, [str(error), hint]))))
                logger.warning("brokers are not discovered: %s", error)
                self._ending.wait(REFRESH)

    def _read(self, keeper: ZooKeeper) -> None:
        while not self._ending.is_set():
            keeper.renew(WAIT)
            self._tell(Found([broker.host for broker in registered.brokers(keeper, self._source.protocol)]))
            self._ending.wait(REFRESH)

    def _tell(self, found: Found) -> None:
        if not self._ending.is_set():
            self._found = found
            self._wake()

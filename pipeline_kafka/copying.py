"""Copies offsets to ZooKeeper, for monitors that look there: one worker of a database does it for all.

In: rows of pipeline_kafka.zookeeper_copies and offsets, once a second. Out: nodes, and how it went.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import psycopg

from .log import logger
from .zookeeper import ZooKeeper, ZooKeeperError, connect

LOCK_CLASS = 1801545324  # next to the class of the workers' slots: who holds it copies
WAIT = 5.0  # seconds a ZooKeeper is given to answer
AGAIN_AFTER = 2.0  # seconds before one that did not is tried again

_LOCK = "SELECT pg_try_advisory_lock(%s, 0) FROM pipeline_kafka.zookeeper_copies LIMIT 1"
_READ = """
SELECT c.consumer_id, c.zookeeper, c.group_id, o.topic, o.partition, o.next_offset
FROM pipeline_kafka.zookeeper_copies c JOIN pipeline_kafka.offsets o USING (consumer_id)
ORDER BY c.zookeeper, o.topic, o.partition
"""
_NOTE = """
UPDATE pipeline_kafka.zookeeper_copies c SET copied_at = coalesce(n.copied_at, c.copied_at), error = n.error
FROM (SELECT %s::int AS id, CASE WHEN %s::text IS NULL THEN clock_timestamp() END AS copied_at, %s::text AS error) n
WHERE c.consumer_id = n.id
"""


class Copy(NamedTuple):
    """An offset that ZooKeeper is to have."""

    consumer: int
    zookeeper: str
    group: str
    topic: str
    partition: int
    offset: int

    @property
    def path(self) -> str:
        """Return the node that holds it, below the chroot."""
        return f"/consumers/{self.group}/offsets/{self.topic}/{self.partition}"


class Copier:
    """Hands offsets over to a thread for each ZooKeeper, which may be away while the worker has other things to do."""

    def __init__(self) -> None:
        self._chosen = False
        self._barred = False
        self._streams: dict[str, Stream] = {}

    def tell(self, connection: psycopg.Connection[Any]) -> None:
        """Hand over what is to be copied now, where this worker is the one that copies, and note how it went."""
        try:
            if self._chosen or self._choose(connection):
                self._tell(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            self._barred = True
            logger.info("this worker copies no offsets to ZooKeeper: %s", error)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            logger.debug("the extension is gone, as the next reading of the catalog will tell")

    def _choose(self, connection: psycopg.Connection[Any]) -> bool:
        """Tell whether this worker is the first that may copy, where anything is to be copied."""
        if not self._barred:
            row = connection.execute(_LOCK, (LOCK_CLASS,)).fetchone()
            self._chosen = row is not None and row[0]
        return self._chosen

    def _tell(self, connection: psycopg.Connection[Any]) -> None:
        copies = [Copy(*row) for row in connection.execute(_READ)]
        for address in self._streams.keys() - {copy.zookeeper for copy in copies}:
            self._streams.pop(address).close()
        for address in {copy.zookeeper for copy in copies}:
            self._hand_over(connection, address, [copy for copy in copies if copy.zookeeper == address])

    def close(self) -> None:
        """End the threads, without waiting for them: their process ends now."""
        for stream in self._streams.values():
            stream.close()

    def _hand_over(self, connection: psycopg.Connection[Any], address: str, copies: list[Copy]) -> None:
        stream = self._streams.get(address)
        if stream is None:
            stream = self._streams[address] = Stream(address)
            stream.start()
        for consumer, error in stream.take(copies).items():
            connection.execute(_NOTE, (consumer, error, error))


class Stream:
    """Keeps one ZooKeeper up to date, in a thread of its own, from start() to close()."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wanted: list[Copy] = []
        self._outcomes: dict[int, str | None] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"copier {address}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Ask it to end."""
        self._ending.set()
        self._news.set()

    def take(self, copies: list[Copy]) -> dict[int, str | None]:
        """Take what is to be copied; return how that went since the last call, by consumer's id: why not, or None."""
        with self._lock:
            self._wanted = copies
            outcomes, self._outcomes = self._outcomes, {}
        self._news.set()
        return outcomes

    def _run(self) -> None:
        said = ""
        while not self._ending.is_set():
            try:
                with connect(self._address, WAIT) as keeper:
                    self._keep_up(keeper)
            except ZooKeeperError as error:
                if said != (said := str(error)):
                    logger.warning("offsets are not copied: %s", said)
                self._note(said)
                self._ending.wait(AGAIN_AFTER)

    def _keep_up(self, keeper: ZooKeeper) -> None:
        told: dict[str, int] = {}
        while not self._ending.is_set():
            self._news.wait()
            self._news.clear()
            for copy in self._wanted:
                if told.get(copy.path) != copy.offset:
                    keeper.renew(WAIT)
                    keeper.set(copy.path, str(copy.offset).encode())
                    told[copy.path] = copy.offset
            self._note(None)

    def _note(self, error: str | None) -> None:
        with self._lock:
            self._outcomes.update({copy.consumer: error for copy in self._wanted})

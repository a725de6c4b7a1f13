"""A worker process: holds its slot, follows the catalog, runs a pipeline a group, and tells how it goes.

In: a database, a slot. Out: an exit code; rows of pipeline_kafka.workers and watermarks.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterable
from datetime import UTC, datetime

import psycopg

from . import catalog, dead_letters, kafka_state
from .catalog import Snapshot
from .copying import Copier
from .database import connect
from .discovery import Discovery, Source
from .errors import LetGo, NothingToDo
from .lanes import GroupRunner
from .log import logger
from .model import TopicPartition
from .place import Place
from .registered import protocol_of
from .runner import LAST_WAIT, Runner
from .steps import Refusal

LOCK_CLASS = 1801545323  # "kafk": the class of the advisory locks that slots are, see sql/install/70_status.sql
FIRST_FREE_SLOT = 100  # where workers that are started by hand look for a slot of their own
LOOK_EVERY = 1.0  # seconds between looks at what is not notified of
TELL_EVERY = 5.0  # seconds between rows about this worker
SLOT_WAIT = 15.0  # seconds the server may take to notice that a slot's last process is gone
RELOAD_EVERY = 10.0  # seconds between readings of the catalog without a notification
EXPIRE_EVERY = 60.0  # seconds between looks for dead letters that are not kept any longer

_DATABASE_WANTED = """
SELECT EXISTS (
    SELECT FROM pg_locks l
    WHERE l.locktype = 'object' AND l.classid = 'pg_database'::regclass AND l.objid = %s AND l.pid <> pg_backend_pid()
      AND l.mode IN ('ShareLock', 'AccessExclusiveLock'))
"""
_TELL = """
INSERT INTO pipeline_kafka.workers AS w
    (slot, host, pid, backend_pid, started_at, partitions, last_poll, last_progress, last_error,
     last_error_at)
VALUES (%(slot)s, %(host)s, %(pid)s, pg_backend_pid(), %(started_at)s, %(partitions)s, %(last_poll)s, %(last_progress)s,
        %(last_error)s, %(last_error_at)s)
ON CONFLICT (slot) DO UPDATE
SET host = EXCLUDED.host, pid = EXCLUDED.pid, backend_pid = EXCLUDED.backend_pid, started_at = EXCLUDED.started_at,
    seen_at = now(), partitions = EXCLUDED.partitions, last_poll = EXCLUDED.last_poll,
    last_progress = EXCLUDED.last_progress, last_error = EXCLUDED.last_error, last_error_at = EXCLUDED.last_error_at
"""
_WATERMARKS = """
INSERT INTO pipeline_kafka.watermarks AS w (topic, partition, low, high)
SELECT * FROM unnest(%s::text[], %s::int[], %s::int8[], %s::int8[]) ORDER BY 1, 2
ON CONFLICT (topic, partition) DO UPDATE SET low = EXCLUDED.low, high = EXCLUDED.high, seen_at = EXCLUDED.seen_at
WHERE (w.low, w.high) IS DISTINCT FROM (EXCLUDED.low, EXCLUDED.high)
"""


class Worker:
    """One slot's process. ``slot`` None takes the first free one for workers started by hand."""

    def __init__(self, dsn: str, slot: int | None, *, local: bool) -> None:
        self._dsn = dsn
        self._local = local
        self._started_at = datetime.now(UTC)
        self._wake, self._waker = os.pipe()
        self._stopping = False
        self._lets_go = False
        self._runners: dict[str, Runner] = {}
        self._told: dict[TopicPartition, tuple[int, int]] = {}
        self._discovery = Discovery(lambda: os.write(self._waker, b"d"))
        self._refusals: dict[int, Refusal] | None = None  # by consumer's id, as they were told
        self._copier = Copier()
        self._connection = connect(dsn, "pipeline_kafka worker")
        self._system, self._database, self._name = catalog.identify(self._connection)
        self._slot = self._take_slot(slot)
        self._instance = f"{self._system}-{self._database}-{self._slot}"

    def stop(self) -> None:
        """Ask the worker to finish; safe in a signal handler and from any thread."""
        self._stopping = True
        os.write(self._waker, b"x")

    def run(self) -> None:
        """Work until stopped.

        Raises NothingToDo where the slot is not needed, LetGo where the database is to be left, psycopg.Error where
        it is out of reach.
        """
        logger.info("begins in slot %d of database %s", self._slot, self._name)
        try:
            self._connection.execute("LISTEN pipeline_kafka")
            self._follow()
        finally:
            self._end()

    # The slot -----------------------------------------------------------------------------------------------

    def _take_slot(self, slot: int | None) -> int:
        if slot is not None:
            self._wait_for_slot(slot)
            return slot
        slot = FIRST_FREE_SLOT
        while not self._lock(slot):
            slot += 1
        return slot

    def _wait_for_slot(self, slot: int) -> None:
        """Take a slot; where it is taken, by a session whose process was killed just now or by another worker.

        Which of them cannot be told but by waiting, and to leave at once would leave the slot to nobody.
        """
        until = time.monotonic() + SLOT_WAIT
        while not self._lock(slot):
            if time.monotonic() >= until:
                raise NothingToDo(f"slot {slot} is already run by another worker")
            time.sleep(0.1)

    def _lock(self, slot: int) -> bool:
        row = self._connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (LOCK_CLASS, slot)).fetchone()
        assert row is not None
        return bool(row[0])

    def _leave_slot_if_unneeded(self, snapshot: Snapshot) -> Snapshot:
        """End where this slot is not wanted any more.

        The lock goes first and the catalog is read once more: a worker that consume_begin() has started meanwhile
        found the slot taken and left again, relying on this one to see the new consumer.
        """
        if self._needed(snapshot):
            return snapshot
        self._connection.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCK_CLASS, self._slot))
        snapshot = self._read()
        if not self._needed(snapshot) or not self._lock(self._slot):
            raise NothingToDo("no consumer is enabled" if not snapshot.consumers else "fewer workers are wanted")
        return snapshot

    def _needed(self, snapshot: Snapshot) -> bool:
        return self._slot < snapshot.workers_wanted if self._local else True

    # The catalog --------------------------------------------------------------------------------------------

    def _read(self) -> Snapshot:
        try:
            return self._read_catalog(f"pipeline_kafka-{self._system}-{self._name}")
        except (
            psycopg.errors.UndefinedTable,
            psycopg.errors.UndefinedFunction,
            psycopg.errors.InvalidSchemaName,
        ):
            raise NothingToDo(f"the extension is not in database {self._name}") from None

    def _read_catalog(self, default_group: str) -> Snapshot:
        return catalog.read(self._connection, default_group)

    def _follow(self) -> None:
        reload_at = tell_at = expire_at = 0.0
        snapshot: Snapshot | None = None
        while not self._stopping:
            now = time.monotonic()
            if now >= reload_at:
                snapshot = self._apply(self._leave_slot_if_unneeded(self._read()), snapshot)
                reload_at = now + RELOAD_EVERY
            if now >= tell_at:
                self._tell()
                tell_at = now + TELL_EVERY
            if now >= expire_at:
                expire_at = now + (EXPIRE_EVERY if dead_letters.expire(self._connection) else LOOK_EVERY)
            self._let_go_if_wanted()
            self._tell_watermarks()
            self._look_at_kafka(snapshot)
            self._discovery.tell(self._connection)
            self._copier.tell(self._connection)
            if self._notified(LOOK_EVERY):
                reload_at = 0.0

    def _apply(self, snapshot: Snapshot, known: Snapshot | None) -> Snapshot:
        if snapshot != known:
            for group in list(self._runners):
                if group not in snapshot.groups():
                    self._finish([self._runners.pop(group)])
            for group in snapshot.groups():
                if group in self._runners:
                    self._runners[group].follow(snapshot)
                else:
                    self._runners[group] = GroupRunner(Place(self._dsn, group, self._instance), snapshot)
                    self._runners[group].start()
        properties = dict(snapshot.properties)
        sources = {Source(address, protocol_of(wanted, properties)) for address, wanted in snapshot.zookeepers}
        self._discovery.follow(self._connection, sources)
        if self._local and self._slot == 0 and snapshot.workers_wanted > 1:
            self._start_missing(snapshot.workers_wanted)
        return snapshot

    def _start_missing(self, wanted: int) -> None:
        """Start workers that a changed pipeline_kafka.workers asks for, or that could not start before."""
        running = self._connection.execute(
            "SELECT count(*) FROM pipeline_kafka.workers_status WHERE state = 'running' AND slot < %s",
            (wanted,),
        ).fetchone()
        assert running is not None
        if running[0] < wanted:
            self._connection.execute("SELECT pipeline_kafka.start_workers(%s)", (wanted,))

    def _notified(self, timeout: float) -> bool:
        """Wait for a notification, a wake-up or ``timeout`` seconds; tell whether the catalog has changed."""
        if self._wake in select.select([self._connection.fileno(), self._wake], [], [], timeout)[0]:
            os.read(self._wake, 1024)
        return any(True for _ in self._connection.notifies(timeout=0))

    def _let_go_if_wanted(self) -> None:
        """Leave a database that somebody waits to drop, rename or copy: they give up after 5 seconds."""
        row = self._connection.execute(_DATABASE_WANTED, (self._database,)).fetchone()
        if row is not None and row[0]:
            self._lets_go = self._local  # its process ends now: a pipeline may be waiting for Kafka longer than 5 s
            raise LetGo(f"database {self._name} is to be dropped, renamed or copied")

    # What is told -------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        progresses = [runner.progress for runner in self._runners.values()]
        failed = max(progresses, key=lambda progress: progress.last_error_at, default=None)
        self._connection.execute(
            _TELL,
            {
                "slot": self._slot,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "started_at": self._started_at,
                "partitions": sum(progress.partitions for progress in progresses),
                "last_poll": _latest(progress.last_poll for progress in progresses),
                "last_progress": _latest(progress.last_progress for progress in progresses),
                "last_error": failed and failed.last_error,
                "last_error_at": _latest(progress.last_error_at for progress in progresses),
            },
        )

    def _tell_watermarks(self) -> None:
        pipelines = [runner.pipeline for runner in self._runners.values()]
        seen = {key: marks for pipeline in pipelines if pipeline for key, marks in pipeline.watermarks.items()}
        news = [(*key, *marks) for key, marks in seen.items() if self._told.get(key) != marks]
        if news:
            self._connection.execute(_WATERMARKS, [list(column) for column in zip(*news, strict=True)])
        self._told = seen

    def _look_at_kafka(self, snapshot: Snapshot | None) -> None:
        """Tell which groups cannot be read now, and why: at once where that changes."""
        until = time.monotonic() + LOOK_EVERY
        for runner in sorted(self._runners.values(), key=lambda runner: runner.looked_at):
            if time.monotonic() < until:  # else its turn comes next time: there is other work
                runner.look()
        consumers = snapshot.consumers if snapshot else ()
        runners = [(consumer, self._runners.get(consumer.group_id)) for consumer in consumers]
        refusals = {c.id: r.progress.ear.trouble for c, r in runners if r is not None and r.progress.ear.trouble}
        if refusals != self._refusals:
            kafka_state.tell(self._connection, self._slot, refusals)
            self._tell()
            self._refusals = refusals

    # The end ------------------------------------------------------------------------------------------------

    def _finish(self, runners: Iterable[Runner]) -> None:
        runners = list(runners)
        for runner in runners:
            runner.stop()
        for runner in runners:
            runner.join(LAST_WAIT + 1.0)

    def _end(self) -> None:
        if not self._lets_go:
            self._finish(self._runners.values())
        self._discovery.close()
        self._copier.close()
        self._connection.close()
        logger.info("has left slot %d of database %s", self._slot, self._name)


def _latest(times: Iterable[float]) -> datetime | None:
    latest = max(times, default=0.0)
    return datetime.fromtimestamp(latest, UTC) if latest else None

"""A replay's worker: like any other, but for one replay, with which it ends.

In: a database, the slot of a replay. Out: an exit code.
"""

from __future__ import annotations

from . import catalog
from .catalog import Snapshot
from .place import Place
from .replaying import ReplayRunner
from .worker import Worker

FIRST_SLOT = 1024  # of replays, behind those of up to 1024 workers: see sql/install/56_replay.sql


class ReplayWorker(Worker):
    """The process of one replay. A slot may be given to another replay as soon as its own has ended."""

    _replay: int | None = None

    def _needed(self, snapshot: Snapshot) -> bool:
        return bool(snapshot.consumers)

    def _read_catalog(self, default_group: str) -> Snapshot:
        return catalog.read(self._connection, default_group, self._slot)

    def _apply(self, snapshot: Snapshot, known: Snapshot | None) -> Snapshot:
        (consumer,) = snapshot.consumers
        if consumer.id != self._replay:
            self._finish(self._runners.values())
            self._replay = consumer.id
            place = Place(self._dsn, consumer.group_id, self._instance, lane_of=consumer.id)
            self._runners = {consumer.group_id: ReplayRunner(place, snapshot)}
            self._runners[consumer.group_id].start()
        self._runners[consumer.group_id].follow(snapshot)
        return snapshot

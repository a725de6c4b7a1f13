"""Workers run from the command line."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fix_report import Watch
from tests.testbed.database import Database
from tests.testbed.worker import Worker

MakeWorker = Callable[..., Worker]

_numbers = itertools.count(1)


@pytest.fixture
def external_worker(request: pytest.FixtureRequest, folder: Path, watch_log: Watch) -> MakeWorker:
    """Call to start a worker outside the server: external_worker(dsn=that of ``database``, slot=None)."""

    def start(dsn: str | None = None, slot: int | None = None) -> Worker:
        if dsn is None:
            database: Database = request.getfixturevalue("database")
            dsn = database.dsn()
        number = next(_numbers)
        worker = Worker(dsn, folder / f"worker-{number}.log", slot)
        watch_log(f"worker {number} log", worker.log_file)
        # Ended before any fixture is, and so before the database is dropped, whichever came first.
        request.node.addfinalizer(worker.stop)
        return worker.start()

    return start

"""PostgreSQL: a cluster for the session, a database a test, and a cluster of one's own to break."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fix_report import Watch
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database

Connection = psycopg.Connection[tuple[Any, ...]]
Connect = Callable[..., Connection]

_numbers = itertools.count(1)


def new_database(cluster: Cluster) -> Generator[Database]:
    """A database with the extension, dropped at the end even when making it failed half-way."""
    database = Database(cluster, f"test_{next(_numbers)}")
    try:
        yield database.create()
    finally:
        if cluster.running:
            database.drop()


@pytest.fixture(scope="session")
def cluster(session_folder: Path, watch_log: Watch) -> Generator[Cluster]:
    """A running cluster with the extension preloaded, for all tests that leave it standing."""
    cluster = Cluster(session_folder / "cluster")
    watch_log("server log", cluster.log_file)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def database(cluster: Cluster) -> Generator[Database]:
    """A fresh database with the extension; afterwards its workers must let go of it."""
    yield from new_database(cluster)


@pytest.fixture
def connect(database: Database) -> Generator[Connect]:
    """Call for a connection to ``database``: autocommit=True, libpq parameters by name. Closed at the end."""
    with ExitStack() as stack:

        def connect(autocommit: bool = True, **parameters: Any) -> Connection:
            return stack.enter_context(database.connect(autocommit, **parameters))

        yield connect


@pytest.fixture
def admin(connect: Connect) -> Connection:
    """A superuser's autocommit connection to ``database``."""
    return connect()


@pytest.fixture
def own_cluster(folder: Path, watch_log: Watch) -> Generator[Cluster]:
    """A running cluster of the test's own, preloaded, to crash, restart and promote."""
    cluster = Cluster(folder / "own")
    watch_log("own server log", cluster.log_file)
    cluster.start()
    yield cluster
    cluster.stop("immediate")


@pytest.fixture
def own_database(own_cluster: Cluster) -> Database:
    """A database with the extension in ``own_cluster``; it goes with its cluster."""
    return Database(own_cluster, f"test_{next(_numbers)}").create()

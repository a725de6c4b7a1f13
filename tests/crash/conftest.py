"""Fixtures of the crash tests."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.crash.site import Site
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.kafka import Kafka


@pytest.fixture
def site(database: Database, kafka: Kafka) -> Generator[Site]:
    """A database of the session's cluster, whose server must not be reset."""
    since = database.cluster.log_size()
    site = Site(database, kafka)
    yield site
    site.close()
    assert database.cluster.resets(since) == 0


@pytest.fixture
def own_site(own_database: Database, kafka: Kafka) -> Generator[Site]:
    """A database of a server that is the test's own to crash."""
    site = Site(own_database, kafka)
    yield site
    site.close()


@pytest.fixture
def no_local_workers(cluster: Cluster) -> Generator[None]:
    """The session's server starts no worker of its own until the test ends."""
    with cluster.connect() as admin:
        admin.execute("ALTER SYSTEM SET pipeline_kafka.workers = 0")
        admin.execute("SELECT pg_reload_conf()")
        yield
        admin.execute("ALTER SYSTEM RESET pipeline_kafka.workers")
        admin.execute("SELECT pg_reload_conf()")

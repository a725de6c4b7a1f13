"""Fixtures of the tests of the whole pipeline."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.fix_cluster import Connection
from tests.integration.flow import Flow
from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until


@pytest.fixture
def flow(linked: Connection, kafka: Kafka) -> Flow:
    """A database of the test's own that knows the session's Kafka."""
    return Flow(linked, kafka)


@pytest.fixture
def no_local_workers(admin: Connection) -> Generator[None]:
    """The server starts no worker of its own: pipeline_kafka.workers is 0 until the test ends."""
    _set_workers(admin, "ALTER SYSTEM SET pipeline_kafka.workers = 0", "0")
    yield
    _set_workers(admin, "ALTER SYSTEM RESET pipeline_kafka.workers", "1")


def _set_workers(admin: Connection, command: str, expected: str) -> None:
    admin.execute(command)
    admin.execute("SELECT pg_reload_conf()")
    wait_until(
        lambda: admin.execute("SELECT current_setting('pipeline_kafka.workers')").fetchone(),
        f"pipeline_kafka.workers is {expected}",
        accept=lambda row: row == (expected,),
    )

"""Kafka: a broker for the session, topics with names of their own, and a broker of one's own to break."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fix_cluster import Connection
from tests.fix_report import Watch
from tests.testbed.broker import Broker
from tests.testbed.brokers import find_kafka
from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until

MakeTopic = Callable[..., str]
ConsumerRunning = Callable[..., None]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def broker(session_folder: Path, watch_log: Watch) -> Generator[Kafka]:
    """The session's Kafka, for all tests that leave it standing: see find_kafka()."""
    kafka = find_kafka(session_folder / "broker")
    if isinstance(kafka, Broker):
        watch_log("broker log", kafka.log_file)
    kafka.start()
    yield kafka
    kafka.stop()


@pytest.fixture
def kafka(broker: Kafka) -> Kafka:
    """The session's Kafka by its usual name."""
    return broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> MakeTopic:
    """Call to create a topic no other test has: topic(partitions=1, config=None, suffix='', on=kafka)."""

    def make(
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        suffix: str = "",
        on: Kafka | None = None,
    ) -> str:
        kafka = on or request.getfixturevalue("broker")
        return kafka.create_topic(unique_name(request) + suffix, partitions, config)

    return make


def unique_name(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own, on a broker that other processes use too."""
    plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in request.node.name)
    return f"{plain[:60]}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def linked(admin: Connection, kafka: Kafka) -> Connection:
    """``admin``, after add_broker() for the session's Kafka."""
    link(admin, kafka.bootstrap)
    return admin


def link(connection: Connection, bootstrap: str) -> None:
    """add_broker() for each of some bootstrap servers."""
    for host in bootstrap.split(","):
        connection.execute("SELECT pipeline_kafka.add_broker(%s)", [host])


@pytest.fixture
def consumer_running(request: pytest.FixtureRequest) -> ConsumerRunning:
    """Call to wait: consumer_running(topic, relation, state='running', timeout=30, connection=admin)."""

    def wait(
        topic: str,
        relation: str,
        state: str = "running",
        timeout: float = 30,
        connection: Connection | None = None,
    ) -> None:
        where = connection or request.getfixturevalue("admin")
        wait_until(
            lambda: consumer_state(where, topic, relation),
            f"consumer {topic} -> {relation} is {state}",
            timeout,
            accept=lambda row: row is not None and row[0] == state,
        )

    return wait


def consumer_state(connection: Connection, topic: str, relation: str) -> tuple[Any, ...] | None:
    """(state, last_error) of a consumer in consumers_status, None where there is none."""
    return connection.execute(
        """SELECT state, last_error FROM pipeline_kafka.consumers_status
           WHERE topic = %s AND relation = %s::regclass""",
        [topic, relation],
    ).fetchone()


@pytest.fixture(scope="module")
def _module_broker(watch_log: Watch, session_folder: Path) -> Generator[Broker]:
    broker = Broker(session_folder / f"own-broker-{next(_numbers)}")
    watch_log("own broker log", broker.log_file)
    yield broker
    broker.stop()


@pytest.fixture
def own_broker(_module_broker: Broker) -> Broker:
    """A broker from jars, shared by the tests of a module and running at the start of each, to break."""
    _module_broker.resume()
    if not _module_broker.running:
        _module_broker.start()
    return _module_broker

"""ZooKeeper with a Kafka broker of the last version that it keeps: for the session, and one's own to break."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fix_report import Watch
from tests.testbed.zookeeper import ZooKeeper, ZooKeeperBroker

CHROOT = "/kafka"


@pytest.fixture(scope="session")
def zookeeper(session_folder: Path, watch_log: Watch) -> Generator[ZooKeeper]:
    """The session's ZooKeeper, for all tests that leave it standing."""
    zookeeper = ZooKeeper(session_folder / "zookeeper")
    watch_log("ZooKeeper log", zookeeper.log_file)
    with zookeeper.start():
        yield zookeeper


@pytest.fixture(scope="session")
def old_kafka(session_folder: Path, zookeeper: ZooKeeper, watch_log: Watch) -> Generator[ZooKeeperBroker]:
    """The session's Kafka 3.9.1, broker 1 below /kafka of ``zookeeper``."""
    broker = ZooKeeperBroker(session_folder / "old-kafka", zookeeper, CHROOT)
    watch_log("old Kafka's log", broker.log_file)
    with broker.start():
        yield broker


@pytest.fixture
def own_zookeeper(folder: Path, watch_log: Watch) -> Generator[ZooKeeper]:
    """A ZooKeeper of the test's own, to break and to put brokers of one's own beside."""
    zookeeper = ZooKeeper(folder / "zookeeper")
    watch_log("own ZooKeeper log", zookeeper.log_file)
    with zookeeper.start():
        yield zookeeper
        zookeeper.resume()

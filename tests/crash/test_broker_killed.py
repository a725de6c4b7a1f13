"""Kafka dies, or the way to it is cut or clogged, under load."""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest

from tests.crash.site import Site
from tests.fix_kafka import MakeTopic
from tests.testbed.broker import Broker
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.proxy import Proxy

OUTAGE = 8  # seconds: longer than session.timeout.ms


@pytest.fixture
def broken(database: Database, own_broker: Broker) -> Generator[Site]:
    """A database that reads from a broker to break, past its proxy."""
    since = database.cluster.log_size()
    site = Site(database, own_broker)
    yield site
    site.close()
    assert database.cluster.resets(since) == 0


@pytest.fixture
def far(database: Database, own_broker: Broker, kafka_proxy: Proxy, cluster: Cluster) -> Generator[Site]:
    """A database that reads from it through the proxy, while a load takes the direct way."""
    since = cluster.log_size()
    site = Site(database, own_broker, own_broker.proxied_bootstrap)
    yield site
    site.close()
    assert cluster.resets(since) == 0


def test_the_broker_is_killed_and_comes_back(broken: Site, own_broker: Broker, topic: MakeTopic) -> None:
    name = topic(4, on=own_broker)
    broken.consume(name, "t")
    with broken.load(name) as load:
        broken.progress("t")
        own_broker.kill9()
        own_broker.start()
        broken.progress("t", rows=load.count - broken.messages("t") + 1)
    broken.exact(load, "t")


def test_the_broker_is_frozen_for_a_while(broken: Site, own_broker: Broker, topic: MakeTopic) -> None:
    name = topic(4, on=own_broker)
    broken.set_property("socket.timeout.ms", "300000")  # so that nothing may wait for what it answers no more
    broken.consume(name, "t")
    with broken.load(name) as load:
        broken.progress("t")
        own_broker.pause()
        time.sleep(OUTAGE)
        own_broker.resume()
        broken.progress("t", rows=load.count - broken.messages("t") + 1)
    broken.exact(load, "t")


@pytest.mark.parametrize("trouble", ["cut", "stall"])
def test_the_way_to_kafka_is_interrupted(
    far: Site, own_broker: Broker, kafka_proxy: Proxy, topic: MakeTopic, trouble: str
) -> None:
    name = topic(4, on=own_broker)
    far.consume(name, "t")
    with far.load(name) as load:
        far.progress("t")
        getattr(kafka_proxy, trouble)()
        time.sleep(OUTAGE)
        kafka_proxy.resume()
        far.progress("t", rows=load.count - far.messages("t") + 1)
    far.exact(load, "t")

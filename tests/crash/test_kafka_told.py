"""Kafka's own tools see how far the consumers are, under a load without a pause too."""

from __future__ import annotations

from tests.crash.load import Sent, numbered
from tests.crash.site import Site
from tests.fix_kafka import MakeTopic
from tests.testbed.wait import wait_until

ROWS = 100_000


def test_kafka_is_told_while_rows_come_without_a_pause(site: Site, topic: MakeTopic) -> None:
    name = topic(2)
    site.kafka.produce(name, map(numbered, range(ROWS)))
    site.consume(name, "t", batchsize=200)
    told = wait_until(lambda: site.told(name), "Kafka is told", accept=lambda told: sum(told.values()) > 0)
    assert sum(told.values()) < ROWS
    site.exact(Sent(name, ROWS), "t")

"""A worker's connections to PostgreSQL are cut, clogged or ended by the server under load."""

from __future__ import annotations

import time

import pytest

from tests.crash.site import Site
from tests.fix_kafka import MakeTopic
from tests.fix_worker import MakeWorker
from tests.testbed.proxy import Proxy

OUTAGE = 8  # seconds: longer than session.timeout.ms


@pytest.mark.usefixtures("no_local_workers")
@pytest.mark.parametrize("trouble", ["cut", "stall"])
def test_the_way_to_postgresql_is_interrupted(
    site: Site, topic: MakeTopic, external_worker: MakeWorker, postgres_proxy: Proxy, trouble: str
) -> None:
    name = topic(4)
    site.consume(name, "t")
    worker = external_worker(site.database.dsn(host=postgres_proxy.address.host, port=postgres_proxy.address.port))
    with site.load(name) as load:
        site.progress("t")
        getattr(postgres_proxy, trouble)()
        time.sleep(OUTAGE)
        postgres_proxy.resume()
        site.progress("t", rows=load.count - site.messages("t") + 1)
    site.exact(load, "t")
    assert worker.running


@pytest.mark.parametrize("session", ["pipeline_kafka loader%", "pipeline_kafka worker"])
def test_a_session_of_the_worker_is_ended(site: Site, topic: MakeTopic, session: str) -> None:
    name = topic(4)
    site.consume(name, "t")
    with site.load(name) as load:
        for _ in range(3):
            site.progress("t")
            site.end_session(session)
        site.progress("t")
    site.exact(load, "t")

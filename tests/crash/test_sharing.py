"""Workers come, go, freeze and wake up again under load: each row is written by one of them."""

from __future__ import annotations

import time

from tests.crash.site import Site
from tests.fix_kafka import MakeTopic
from tests.fix_worker import MakeWorker
from tests.testbed.wait import wait_until

FIRST_FREE = 100  # the slot of the first worker from the command line


def test_workers_come_and_go(site: Site, topic: MakeTopic, external_worker: MakeWorker) -> None:
    name = topic(4)
    site.consume(name, "t")
    with site.load(name) as load:
        site.shares({0: 4})
        for _ in range(2):
            helper = external_worker()
            site.shares({0: 2, FIRST_FREE: 2})
            site.progress("t")
            assert helper.stop() == 0
            left = time.monotonic()
            moving(site)
            assert time.monotonic() - left < 5
    site.exact(load, "t")


def test_a_worker_is_killed_and_does_not_come_back(site: Site, topic: MakeTopic, external_worker: MakeWorker) -> None:
    name = topic(4)
    site.consume(name, "t")
    with site.load(name) as load:
        helper = external_worker()
        site.shares({0: 2, FIRST_FREE: 2})
        site.progress("t")
        helper.kill9()
        moving(site)
    site.exact(load, "t")


def test_a_worker_frozen_until_others_have_its_partitions(
    site: Site, topic: MakeTopic, external_worker: MakeWorker
) -> None:
    name = topic(4)
    site.consume(name, "t")
    with site.load(name) as load:
        helper = external_worker()
        for _ in range(2):
            site.shares({0: 2, FIRST_FREE: 2})
            site.progress("t")
            helper.pause()
            moving(site)
            helper.resume()
        site.shares({0: 2, FIRST_FREE: 2})
        site.progress("t")
    site.exact(load, "t")


def test_a_worker_frozen_in_the_middle_of_a_transaction(
    site: Site, topic: MakeTopic, external_worker: MakeWorker
) -> None:
    """Its session waits for rows to copy, with the offsets locked that another worker must move now."""
    name = topic(4)
    site.consume(name, "t")
    with site.load(name) as load:
        helper = external_worker()
        site.shares({0: 2, FIRST_FREE: 2})
        site.progress("t")
        with site.database.connect(autocommit=False) as other:
            other.execute("LOCK TABLE t")
            site.wait_loading("Lock", loader=f"%-{FIRST_FREE}")
            helper.pause()
        moving(site)
        helper.resume()
        site.shares({0: 2, FIRST_FREE: 2})
        site.progress("t")
    site.exact(load, "t")


def moving(site: Site) -> None:
    """Wait until rows of every partition come in."""
    before = standing(site)
    wait_until(
        lambda: standing(site),
        f"every partition is beyond {before}",
        accept=lambda now: all(now[partition] > before[partition] for partition in before),
    )


def standing(site: Site) -> dict[int, int]:
    """The next offset of each partition."""
    return dict(site.rows("SELECT partition, next_offset FROM pipeline_kafka.offsets"))

"""The worker's process dies, in all ways a process can, while rows stream in."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.crash.site import Site
from tests.fix_kafka import MakeTopic

SLOT_SESSIONS = """SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name = 'pipeline_kafka worker'"""


def test_a_worker_killed_20_times(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    site.consume(name, "t")
    with site.load(name) as load:
        for _ in range(20):
            site.progress("t")
            old = site.kill_child()
            site.hurry()
            site.child(but=old)
    site.exact(load, "t")


def test_a_worker_that_crashes_does_not_reset_the_server(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    site.consume(name, "t")
    since = site.cluster.log_size()
    with site.load(name) as load:
        site.progress("t")
        old = site.kill_child(number=signal.SIGSEGV)
        site.child(but=old)
        site.progress("t")
    site.exact(load, "t")
    assert "terminated by signal 11: Segmentation fault; starting it again" in site.cluster.log(since)
    assert site.cluster.resets(since) == 0


@pytest.mark.parametrize("moment", ["BEFORE INSERT", "AFTER INSERT"])
def test_a_worker_killed_while_it_is_loading(site: Site, topic: MakeTopic, moment: str) -> None:
    """Its backend is in the statement and looks at its client only when that is over."""
    name = topic(2)
    site.consume(name, "t")
    with site.load(name) as load:
        site.progress("t")
        sleep_once(site, "t", moment, seconds=30)
        site.wait_loading("Timeout")
        old = site.kill_child()
        died = time.monotonic()
        site.child(but=old)
        site.progress("t")
        assert time.monotonic() - died < 10
    site.exact(load, "t")


def sleep_once(site: Site, relation: str, moment: str, seconds: int) -> None:
    """Let the next statement that writes to a relation sleep, and no other."""
    site.admin.execute(
        f"""CREATE SEQUENCE naps;
            CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF nextval('naps') = 1 THEN PERFORM pg_sleep({seconds}); END IF;
                RETURN NULL;
            END $$;
            CREATE TRIGGER nap {moment} ON {relation} FOR EACH STATEMENT EXECUTE FUNCTION nap()"""
    )


def test_a_slot_that_a_dead_worker_still_holds(site: Site, topic: MakeTopic) -> None:
    """Its session is slow to go. The next process must not take it for another worker, and leave."""
    name = topic(2)
    site.consume(name, "t")
    with site.load(name) as load:
        site.progress("t")
        old = site.child()
        backend = site.value("SELECT backend_pid FROM pipeline_kafka.workers_status WHERE slot = 0")
        os.kill(backend, signal.SIGSTOP)
        try:
            site.kill_child()
            site.wait(SLOT_SESSIONS, 2, "the next process has come")
        finally:
            os.kill(backend, signal.SIGCONT)
        site.child(but=old)
        site.progress("t")
    site.exact(load, "t")

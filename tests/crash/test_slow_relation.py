"""A relation that is locked, slow or in a deadlock holds up its own consumer and nobody else's."""

from __future__ import annotations

import time

from tests.crash.site import Site
from tests.fix_kafka import MakeTopic

LOCKED = 20  # seconds
KEYS = 300


def test_a_locked_relation_holds_up_only_its_own_consumer(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    site.consume(name, "t", "locked")
    with site.load(name) as load:
        site.progress("t", "locked")
        with site.database.connect(autocommit=False) as other:
            other.execute("LOCK TABLE locked")
            until = time.monotonic() + LOCKED
            while time.monotonic() < until:
                site.progress("t", timeout=10)
        site.progress("t", "locked")
    site.exact(load, "t", "locked")
    site.all_told(name)


def test_a_slow_trigger_holds_up_only_its_own_consumer(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    site.consume(name, "t", "slow")
    site.admin.execute(
        """CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(4); RETURN NULL; END $$;
           CREATE TRIGGER nap AFTER INSERT ON slow FOR EACH STATEMENT EXECUTE FUNCTION nap()"""
    )
    with site.load(name) as load:
        site.progress("slow")
        site.progress("t", timeout=10)
    site.exact(load, "t", "slow")
    site.all_told(name)


def test_a_deadlock_of_two_workers_is_tried_again(site: Site, topic: MakeTopic) -> None:
    name = topic(2)
    site.admin.execute(
        """CREATE TABLE hits (n bigint PRIMARY KEY, hits int);
           CREATE VIEW t AS SELECT n FROM hits;
           CREATE FUNCTION hit() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN
               INSERT INTO hits VALUES (NEW.n, 1) ON CONFLICT (n) DO UPDATE SET hits = hits.hits + 1;
               PERFORM pg_sleep(0.002);
               RETURN NEW;
           END $$;
           CREATE TRIGGER hit INSTEAD OF INSERT ON t FOR EACH ROW EXECUTE FUNCTION hit()"""
    )
    since = site.cluster.log_size()
    meet(site, name)
    site.read(name)
    assert "40P01 deadlock detected" in site.cluster.log(since)
    assert site.rows("SELECT count(*), min(hits), max(hits) FROM hits") == [(KEYS, 2, 2)]
    assert site.aside(name) == []


def test_after_a_deadlock_the_second_of_two_equal_keys_is_set_aside_for_what_it_is(
    site: Site, topic: MakeTopic
) -> None:
    name = topic(2)
    site.admin.execute(
        """CREATE TABLE t (n bigint PRIMARY KEY);
           CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$;
           CREATE TRIGGER nap BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION nap()"""
    )
    since = site.cluster.log_size()
    meet(site, name)
    site.read(name)
    assert "40P01 deadlock detected" in site.cluster.log(since)
    assert site.column("SELECT n FROM t") == list(range(KEYS))
    assert [sqlstate for _, _, sqlstate in site.aside(name)] == ["23505"] * KEYS


def meet(site: Site, topic: str) -> None:
    """Let two workers write the same keys at the same time, one upwards, one downwards."""
    site.begin(topic, "t", format="json", parallelism=2)
    site.shares({0: 1, 1: 1})
    producer = site.kafka.producer()
    for up in range(KEYS):
        for partition, n in enumerate([up, KEYS - 1 - up]):
            producer.produce(topic, f'{{"n":{n}}}', partition=partition)
    assert producer.flush(30) == 0

"""Relations and consumers are changed under load."""

from __future__ import annotations

import json

from tests.crash.load import Load
from tests.crash.site import Site
from tests.fix_kafka import MakeTopic


def test_a_consumer_ends_and_begins_again(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    site.consume(name, "t", "other")
    with site.load(name) as load:
        for _ in range(10):
            site.progress("t")
            site.end(name, "t")
            site.begin(name, "t", format="json", start_offset=None)
        site.progress("t", "other")
    site.exact(load, "t", "other")


def test_a_table_is_truncated(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    site.consume(name, "t")
    site.admin.execute("CREATE TABLE history (LIKE t)")
    with site.load(name) as load:
        for _ in range(10):
            site.progress("t")
            with site.admin.transaction():
                site.admin.execute("LOCK TABLE t; INSERT INTO history SELECT * FROM t; TRUNCATE t")
        site.progress("t")
    site.read(name)
    site.admin.execute("INSERT INTO history SELECT * FROM t")
    site.exact(load, "history")


def test_a_table_is_dropped_and_made_again(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    site.consume(name, "t", "other")
    with site.load(name) as load:
        site.progress("t", "other")
        dropped = site.status(name, "t")["id"]
        site.admin.execute("DROP TABLE t")
        site.progress("other")
        site.consume(name, "t")
        site.progress("t", "other")
    site.exact(load, "t", "other")
    state = "SELECT state, last_sqlstate, last_error FROM pipeline_kafka.consumers_status WHERE id = %s"
    assert site.rows(state, dropped) == [("stopped", "42P01", "relation public.t was dropped")]


def test_columns_come_and_go(site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    site.consume(name, "t")
    with site.load(name) as load:
        for _ in range(10):
            site.progress("t")
            site.admin.execute("ALTER TABLE t ADD COLUMN extra text DEFAULT 'x'")
            site.progress("t")
            site.admin.execute("ALTER TABLE t DROP COLUMN extra")
        site.progress("t")
    site.exact(load, "t")


def test_a_value_is_written_for_the_type_that_its_column_has(site: Site, topic: MakeTopic) -> None:
    """The same JSON string is another text in a text column than in a jsonb column."""
    name = topic(4)
    site.consume(name, "t")
    site.admin.execute("ALTER TABLE t ADD COLUMN word text")
    with Load(site.kafka, name, row=lambda n: json.dumps({"n": n, "word": f"word {n}"})) as load:
        for _ in range(10):
            site.progress("t")
            site.admin.execute("ALTER TABLE t ALTER COLUMN word TYPE jsonb USING to_jsonb(word)")
            site.progress("t")
            site.admin.execute("ALTER TABLE t ALTER COLUMN word TYPE text USING word #>> '{}'")
        site.progress("t")
    site.exact(load, "t")
    assert site.rows("SELECT n, word FROM t WHERE word IS DISTINCT FROM 'word ' || n LIMIT 5") == []

"""What changes between the decoding of a batch and its loading: the relation, and the consumer itself."""

from __future__ import annotations

import pytest

from pipeline_kafka.work import Failure
from tests.fix_cluster import Connection
from tests.fix_feed import MakeFeed

ANEW = Failure(retry_in=0.0, counts=False)  # the batch is read again, for what there is now


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (alt)",
        "CREATE UNIQUE INDEX ON t (alt, name)",
        "ALTER INDEX t_pkey RENAME TO other",
        "ALTER DOMAIN word SET DEFAULT 'x'",
        "ALTER TABLE t ALTER alt SET DEFAULT 1",
        "ALTER TABLE t ADD more int",
        "ALTER TABLE t RENAME TO u",
    ],
)
def test_a_batch_for_another_definition_is_decoded_again(admin: Connection, feed: MakeFeed, change: str) -> None:
    admin.execute("CREATE DOMAIN word AS text; CREATE TABLE t (id int PRIMARY KEY, alt int NOT NULL, name word)")
    made = feed(on_conflict="update")
    work = made.work([made.message('{"id":1,"alt":1}')])
    admin.execute(change.encode())
    assert made.loader.load([work])[made.id] == ANEW
    assert made.letters() == []


@pytest.mark.parametrize("change", ["CREATE INDEX ON t (id)", "ANALYZE t", "COMMENT ON TABLE t IS 'x'"])
def test_what_does_not_matter_does_not(admin: Connection, feed: MakeFeed, change: str) -> None:
    admin.execute("CREATE TABLE t (id int PRIMARY KEY)")
    made = feed()
    work = made.work([made.message('{"id":1}')])
    admin.execute(change.encode())
    assert made.loader.load([work])[made.id] is None


def test_who_was_begun_again_is_not_stopped_for_what_held_before(admin: Connection, feed: MakeFeed) -> None:
    admin.execute("CREATE TABLE t (id int)")
    made = feed(on_error="stop")
    bad = made.work([made.message('{"id":1}'), made.message('{"id":"x"}')])
    admin.execute("UPDATE pipeline_kafka.consumers SET on_error = 'skip'")  # as consume_begin() does
    assert made.loader.load([bad])[made.id] == ANEW
    assert made.rows("SELECT enabled FROM pipeline_kafka.consumers") == [(True,)]
    assert made.rows("SELECT sqlstate FROM pipeline_kafka.consumer_state") == []
    assert made.loader.load([made.work(bad.messages)])[made.id] is None
    assert made.column("SELECT id FROM t") == [1]
    assert made.rows("SELECT skipped FROM pipeline_kafka.offsets") == [(1,)]

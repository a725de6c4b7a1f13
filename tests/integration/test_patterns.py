"""Patterns of topics: those to come, those that are excluded, and what no pattern can say."""

from __future__ import annotations

import psycopg
import pytest

from tests.fix_cluster import Connection
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow


def family(topic: MakeTopic) -> tuple[str, str]:
    """A topic, and a pattern for it and those that are named alike."""
    first = topic(suffix=".a")
    return first, f"^{first.rpartition('-')[0]}"


def test_a_topic_to_come_is_read_from_its_beginning_whatever_the_start(flow: Flow, topic: MakeTopic) -> None:
    first, pattern = family(topic)
    flow.kafka.produce(first, ["1"])
    flow.admin.execute("CREATE TABLE t (id int, kafka_topic text)")
    flow.look_often()
    flow.begin(pattern, "t", start_offset=-1)
    flow.wait_state(pattern, "t", "running")
    late = topic(2, suffix=".late")
    flow.kafka.produce(late, ["2", "3"], partition=0)
    flow.kafka.produce(late, ["4"], partition=1)
    flow.read(late)
    flow.kafka.produce(first, ["5"])
    flow.read(first)
    assert flow.rows("SELECT id, kafka_topic FROM t ORDER BY id") == [(2, late), (3, late), (4, late), (5, first)]


def test_excluded_topics_are_left_alone(flow: Flow, topic: MakeTopic) -> None:
    first, pattern = family(topic)
    out, late_out = topic(suffix=".b-dlq"), topic(suffix=".c")
    for name in (first, out, late_out):
        flow.kafka.produce(name, ["1"])
    flow.admin.execute("CREATE TABLE t (id int, kafka_topic text)")
    flow.look_often()
    flow.begin(pattern, "t", exclude="-dlq$")
    flow.read(first)
    flow.read(late_out)
    flow.begin(pattern, "t", start_offset=None, exclude=r"-dlq$|\.c$")
    for name in (first, out, late_out):
        flow.kafka.produce(name, ["2"])
    late = topic(suffix=".d-dlq")
    flow.kafka.produce(late, ["1"])
    flow.read(first)
    flow.wait("SELECT lag FROM pipeline_kafka.consumers_status", 0, "what is excluded is no lag")
    found = "SELECT kafka_topic, count(*) FROM t GROUP BY 1 ORDER BY 1"
    assert flow.rows(found) == [(first, 2), (late_out, 1)]
    flow.begin(pattern, "t", start_offset=None, exclude="")
    for name in (out, late, late_out):
        flow.read(name)
    assert flow.rows(found) == [(first, 2), (out, 2), (late_out, 2), (late, 1)]


def test_what_three_engines_would_read_in_three_ways_is_refused(admin: Connection, no_local_workers: None) -> None:
    admin.execute("CREATE TABLE t (id int)")
    for pattern in (r"^a\d", "^a(?!b)", "^a.*?b", "^a[[:digit:]]", r"^\w"):
        for begin in ("(%s, 't')", "('^a', 't', exclude => %s)"):
            with pytest.raises(psycopg.errors.InvalidRegularExpression, match="more than a plain") as refused:
                admin.execute(f"SELECT pipeline_kafka.consume_begin{begin}".encode(), [pattern])
            assert "exclude" in (refused.value.diag.message_hint or "")


def test_what_no_pattern_can_do_is_refused(admin: Connection, no_local_workers: None) -> None:
    admin.execute("CREATE TABLE t (id int)")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='exclude goes with a pattern of topics, and "a" is'):
        admin.execute("SELECT pipeline_kafka.consume_begin('a', 't', exclude => 'b')")
    with pytest.raises(psycopg.errors.UndefinedTable, match=r'relation "events_\\1" does not exist'):
        admin.execute(r"SELECT pipeline_kafka.consume_begin('^events_(.*)', 'events_\1')")

"""Offsets copied to ZooKeeper, for monitors that look there."""

from __future__ import annotations

import psycopg
import pytest

from tests.fix_kafka import MakeTopic, unique_name
from tests.integration.flow import Flow
from tests.testbed.zookeeper import ZooKeeper

COPY = "SELECT pipeline_kafka.copy_offsets_to_zookeeper(%s, %s, %s, %s)"
ERROR = "SELECT error FROM pipeline_kafka.offset_copies"
OFFSETS = """SELECT jsonb_object_agg(partition, committed_offset)
             FROM pipeline_kafka.zookeeper_offsets(%s, NULL, %s, 60000)"""


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group's name that no other test has."""
    return f"group-{unique_name(request)}"


@pytest.fixture
def read(flow: Flow, topic: MakeTopic) -> str:
    """A topic of two partitions that a consumer has read into t."""
    name = topic(2)
    flow.kafka.produce(name, ["x"] * 3, partition=1)
    flow.admin.execute("CREATE TABLE t (value text)")
    flow.begin(name, "t")
    flow.read(name)
    return name


def test_offsets_are_copied_while_they_move(flow: Flow, read: str, zookeeper: ZooKeeper, group: str) -> None:
    address = f"{zookeeper.address}/monitored"
    zookeeper.write({f"/monitored/consumers/{group}/offsets/{read}/1": "0"})
    flow.admin.execute(COPY, [read, "t", group, address])
    flow.wait(OFFSETS, {"0": 0, "1": 3}, "both partitions are there", group, address)
    flow.kafka.produce(read, ["x"] * 2, partition=0)
    flow.wait(OFFSETS, {"0": 2, "1": 3}, "what was read since is there", group, address)
    flow.wait("SELECT copied_at IS NOT NULL AND error IS NULL FROM pipeline_kafka.offset_copies", True, "it is shown")
    flow.admin.execute("SELECT pipeline_kafka.stop_copying_offsets(%s, 't')", [read])
    with pytest.raises(psycopg.errors.UndefinedObject, match="are not copied"):
        flow.admin.execute("SELECT pipeline_kafka.stop_copying_offsets(%s, 't')", [read])


def test_a_zookeeper_that_goes_is_shown_and_holds_nothing_up(
    flow: Flow, read: str, own_zookeeper: ZooKeeper, group: str
) -> None:
    address = str(own_zookeeper.address)
    own_zookeeper.write({f"/consumers/{group}": ""})
    flow.admin.execute(COPY, [read, "t", group, address])
    flow.wait(OFFSETS, {"0": 0, "1": 3}, "both partitions are there", group, address)
    own_zookeeper.pause()
    flow.kafka.produce(read, ["x"] * 2, partition=0)
    flow.read(read)
    flow.wait(f"SELECT ({ERROR}) LIKE '%%did not answer%%'", True, "it is shown")
    own_zookeeper.resume()
    flow.wait(ERROR, None, "it is well again")
    flow.wait(OFFSETS, {"0": 2, "1": 3}, "what was read meanwhile is there", group, address)


def test_what_cannot_be_copied_is_refused(flow: Flow, read: str, zookeeper: ZooKeeper, group: str) -> None:
    address = f"{zookeeper.address}/refused"
    zookeeper.write({f"/refused/consumers/{group}/ids/reader-1": "{}"})
    with pytest.raises(psycopg.errors.ObjectInUse, match="still has members") as caught:
        flow.admin.execute(COPY, [read, "t", group, address])
    assert caught.value.diag.message_detail == "They are reader-1."
    with pytest.raises(psycopg.errors.UndefinedObject, match=r"there is no consumer nothing -> public\.t"):
        flow.admin.execute(COPY, ["nothing", "t", group, address])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='"a/b" is no name of a consumer group'):
        flow.admin.execute(COPY, [read, "t", "a/b", address])
    flow.admin.execute("CREATE TABLE u (value text)")
    flow.begin(read, "u")
    flow.admin.execute(COPY, [read, "t", "free", address])
    flow.admin.execute(COPY, [read, "t", "free", address])
    with pytest.raises(psycopg.errors.DuplicateObject, match=f"has the offsets of consumer {read} -> public.t already"):
        flow.admin.execute(COPY, [read, "u", "free", address])

"""Where a group stands, by all who know: Kafka, ZooKeeper, and how far the partitions go.

In: a request. Out: rows of group_progress(), which compare_offsets() sets beside our own offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import groups, old_groups
from .client import EARLIEST, LATEST, Kafka, Place
from .protocol import Request

Row = dict[str, Any]


def group_progress(request: Request, group: str, topic: str | None, zookeeper: str | None) -> Iterator[Row]:
    """Yield each partition of the topics a group has offsets in, or of one topic, with both offsets and watermarks.

    An offset is None where there is none, a watermark where Kafka has no such partition. Raises Unanswered where
    neither knows the group.
    """
    kafka = Kafka(request)
    here = {(p.topic, p.partition): p.offset for p in groups.committed(kafka, group)}
    there = _old_offsets(kafka, group, topic, zookeeper, bool(here))
    places = here.keys() | there.keys()
    low, high = watermarks(kafka, {topic} if topic is not None else {name for name, _ in places})
    for place in sorted(places | low.keys()):
        name, number = place
        if topic is None or name == topic:
            yield {
                "topic": name,
                "partition": number,
                "low": low.get(place),
                "high": high.get(place),
                "kafka_offset": here.get(place),
                "zookeeper_offset": there.get(place),
            }


def watermarks(kafka: Kafka, names: set[str]) -> tuple[dict[Place, int], dict[Place, int]]:
    """Return (first offsets, offsets behind the last message) of topics' partitions; unknown topics are left out."""
    topics = kafka.metadata().topics
    places = [(name, number) for name in names & topics.keys() for number in topics[name].partitions]
    low, high = (
        {place: found.offset for place, found in kafka.offsets(places, spec).items()} for spec in (EARLIEST, LATEST)
    )
    return low, high


def _old_offsets(
    kafka: Kafka, group: str, topic: str | None, zookeeper: str | None, found: bool
) -> dict[Place, int | None]:
    """Return ZooKeeper's offsets, where one is named. Raises Unanswered where nobody has the group."""
    if zookeeper is None:
        if not found:
            groups.known(kafka, group)
        return {}
    old_groups.check(group)
    with old_groups.session(zookeeper, kafka.left()) as keeper:
        if not found and keeper.children(f"/consumers/{group}") is None:
            groups.known(kafka, group)
        return {(o.topic, o.partition): o.offset for o in old_groups.offsets(keeper, group, topic)}

"""Where a consumer starts that takes over from a group of others.

In: a request. Out: rows of group_start(), for consume_begin() to store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import ConsumerGroupState

from ..model import matches
from . import groups, old_groups
from .client import Kafka
from .protocol import Request, Unanswered

Place = tuple[str, int]
LEFT = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
SHOWN = 10  # members named in an error


def group_start(
    request: Request, group: str, topic: str, exclude: str | None, source: str, zookeeper: str | None, live: bool
) -> Iterator[dict[str, Any]]:
    """Yield each partition that ``topic``, a name or a pattern, stands for, and the group's offset or None.

    A pattern's topics are those that ``exclude``, another pattern, leaves.

    ``source`` is kafka or zookeeper. Raises Unanswered where the group is not there or has no offset in the topic, and
    unless ``live`` where it still has members, in either place.
    """
    kafka = Kafka(request)
    found = groups.describe(kafka, group)
    members = [f"{member.client_id} at {member.host.removeprefix('/')}" for member in found.members]
    old: dict[Place, int | None] = {}
    if zookeeper is not None:
        old_groups.check(group)
        with old_groups.session(zookeeper, kafka.left()) as keeper:
            if source == "zookeeper" and keeper.children(f"/consumers/{group}") is None:
                raise old_groups.absent(group, keeper)
            members += old_groups.members(keeper, group)
            if live or not members:
                old = {(o.topic, o.partition): o.offset for o in old_groups.offsets(keeper, group)}
    if not live and (members or found.state not in LEFT):
        raise _busy(group, members)
    if source == "kafka" and found.state is ConsumerGroupState.DEAD:
        raise groups.absent(group)
    new = {(p.topic, p.partition): p.offset for p in groups.committed(kafka, group, stable=True)}
    stands = old if source == "zookeeper" else new
    for name, number in _places(kafka, group, topic, exclude, stands):
        yield {"topic": name, "partition": number, "committed_offset": stands.get((name, number))}


def _places(kafka: Kafka, group: str, topic: str, exclude: str | None, stands: dict[Place, Any]) -> list[Place]:
    """Return the partitions there are of what a consumer reads. Raises Unanswered where the group has none of them."""
    pattern = topic.startswith("^")
    topics = kafka.metadata(None if pattern else topic).topics
    names = [name for name in topics if matches(topic, exclude, name)]
    places = sorted((name, number) for name in names for number in topics[name].partitions)
    if all(stands.get(place) is None for place in places):
        others = ", ".join(sorted({name for name, _ in stands}))
        raise Unanswered(
            "42704",
            f'consumer group "{group}" has no offset in topic "{topic}"',
            f"It has offsets in {others}." if others else None,
            "Leave start_from_group out, and say where to start by start_offset.",
        )
    return places


def _busy(group: str, members: list[str]) -> Unanswered:
    more = [] if len(members) <= SHOWN else [f"and {len(members) - SHOWN} more"]
    return Unanswered(
        "55006",
        f'consumer group "{group}" still has members',
        f"They are {', '.join(members[:SHOWN] + more)}." if members else None,
        "Stop them first, and no message is read twice. start_from_live => true takes over beside them.",
    )

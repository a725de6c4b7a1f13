"""Consumer groups as Kafka keeps them: who coordinates them, who is in them, and where they stand.

In: a request. Out: rows of group_coordinator(), groups(), group_members() and committed_offsets().
To look at a group does not make it: nothing is committed, and nobody joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, TopicPartition
from confluent_kafka.admin._group import ConsumerGroupDescription, ConsumerGroupListing, MemberDescription

from .client import Kafka
from .protocol import Request, Unanswered

Row = dict[str, Any]

# Kafka's own words (org.apache.kafka.common.GroupState). Where members of the newer protocol are moving partitions
# among them, librdkafka has no word for the group's state.
STATES: dict[Any, str] = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
TYPES: dict[Any, str] = {ConsumerGroupType.CONSUMER: "consumer", ConsumerGroupType.CLASSIC: "classic"}


def group_coordinator(request: Request, group: str) -> Iterator[Row]:
    """Yield the broker that coordinates a group, and the group's state."""
    found = describe(Kafka(request), group)
    node = found.coordinator
    yield {"id": node.id, "host": node.host, "port": node.port, "state": _state(found)}


def groups(request: Request) -> Iterator[Row]:
    """Yield each consumer group: its name, state and protocol."""
    kafka = Kafka(request)
    admin = kafka.admin()
    found = kafka.coordinated(lambda timeout: admin.list_consumer_groups(request_timeout=timeout), "groups", _failed)
    for group in sorted(found.valid or [], key=lambda group: group.group_id):
        yield {"group_id": group.group_id, "state": _state(group), "type": TYPES.get(group.type)}


def group_members(request: Request, group: str) -> Iterator[Row]:
    """Yield each member of a group, and the partitions that are assigned to it."""
    for member in known(Kafka(request), group).members:
        yield {
            "member_id": member.member_id,
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "host": member.host.removeprefix("/"),
            "assigned": _assigned(member),
        }


def committed_offsets(request: Request, group: str, topic: str | None) -> Iterator[Row]:
    """Yield the offsets that a group has committed, of all topics or of one."""
    kafka = Kafka(request)
    known(kafka, group)
    for place in committed(kafka, group):
        if topic is None or place.topic == topic:
            yield {
                "topic": place.topic,
                "partition": place.partition,
                "committed_offset": place.offset,
                "leader_epoch": place.leader_epoch,
                "metadata": place.metadata or None,
            }


def check(group: str) -> None:
    """Raise Unanswered where this is no name of a group."""
    if not group:
        raise Unanswered("22023", "the name of the consumer group is empty", hint="groups() shows those there are.")


def describe(kafka: Kafka, group: str) -> ConsumerGroupDescription:
    """Return what the coordinator says of a group; of one that is not there, that it is dead. Raises Unanswered."""
    check(group)
    about = f'group "{group}"'
    admin = kafka.admin()
    found: ConsumerGroupDescription = kafka.coordinated(
        lambda timeout: admin.describe_consumer_groups([group], request_timeout=timeout)[group], about
    )
    return found


def known(kafka: Kafka, group: str) -> ConsumerGroupDescription:
    """Return what the coordinator says of a group. Raises Unanswered where there is none."""
    found = describe(kafka, group)
    if found.state is ConsumerGroupState.DEAD:
        raise absent(group)
    return found


def absent(group: str) -> Unanswered:
    """Return that Kafka knows no such group."""
    hint = "groups() shows those there are. Kafka forgets one without members after offsets.retention.minutes."
    return Unanswered("42704", f'Kafka has no consumer group "{group}"', hint=hint)


def committed(kafka: Kafka, group: str, stable: bool = False) -> list[TopicPartition]:
    """Return the offsets that a group has committed, in order; none of a group that is not there.

    ``stable``: wait for transactions that are about to change them.
    """
    check(group)
    asked = [ConsumerGroupTopicPartitions(group)]
    admin = kafka.admin()
    found = kafka.coordinated(
        lambda timeout: admin.list_consumer_group_offsets(asked, require_stable=stable, request_timeout=timeout)[group],
        f'group "{group}"',
    )
    places: list[TopicPartition] = found.topic_partitions or []
    for place in places:
        if place.error is not None:
            raise kafka.unanswered(place.error, f'group "{group}", {place.topic}[{place.partition}]')
    return sorted((p for p in places if p.offset >= 0), key=lambda p: (p.topic, p.partition))


def _state(group: ConsumerGroupDescription | ConsumerGroupListing) -> str:
    return STATES.get(group.state, "Unknown")


def _failed(found: Any) -> Exception | None:
    """Return why a list of groups is not whole: a broker that coordinates some of them did not answer."""
    return found.errors[0] if found.errors else None


def _assigned(member: MemberDescription) -> dict[str, list[int]]:
    places = sorted((p.topic, p.partition) for p in member.assignment.topic_partitions)
    return {topic: [number for name, number in places if name == topic] for topic, _ in places}

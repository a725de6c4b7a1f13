"""Whether every partition is read by somebody: a rebalance can leave some to nobody, and then nothing comes from them.

A static member that comes back is given what it had before, without a rebalance, even if it subscribes to other topics
now or they have more partitions: the coordinator looks only at the assignor (KIP-345). And where a topic is gone for a
moment, deleted to be made again, while the group's leader assigns, it stays unassigned: librdkafka compares the topic
with what it last saw of it, not with what it assigned.

In: a group, the topics it subscribes to, what this member has. Out: whether to join anew.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterable

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from .errors import PipelineError
from .log import logger
from .model import TopicPartition

SOON = 5.0  # seconds until an assignment that never came is looked at as an empty one, and between doubts
SELDOM = 60.0  # seconds between looks at a group in which every partition is read
MOST = 900.0  # seconds between joins that change nothing
_WAIT = 5.0  # seconds Kafka may take to answer

Fits = Callable[[Collection[str], Collection[TopicPartition]], bool | None]


class Coverage:
    """Tells when to look, and when to join anew. ``fits`` says how things stand; see Group."""

    def __init__(self, fits: Fits) -> None:
        self._fits = fits
        self._at = math.inf
        self._is_first = True
        self._doubtful = False
        self._patience = SOON

    def begin(self) -> None:
        """The member has subscribed; nothing is assigned yet."""
        self._at, self._is_first = time.monotonic() + SOON, True

    def end(self) -> None:
        """The member has left."""
        self._at = math.inf

    def assigned(self) -> None:
        """Something was assigned: look at once where it is the first, else when the others have theirs too."""
        self._at = min(self._at, time.monotonic() + (0.0 if self._is_first else SOON))

    def must_join(self, topics: Collection[str], mine: Collection[TopicPartition]) -> bool:
        """Tell whether to leave the group and join it again.

        A first assignment is believed to be wrong at once, a later one when it is wrong twice in a row: between the two
        halves of a cooperative rebalance what moves is nobody's.
        Raises PipelineError where it has joined anew and still got nothing: a new client must be made.
        """
        if time.monotonic() < self._at:
            return False
        fits = self._fits(topics, mine)
        if fits is None:
            self._look_in(SOON)
            return False
        believed, self._is_first, self._doubtful = self._is_first or self._doubtful, False, not fits
        if fits:
            self._patience = SOON
            self._look_in(SELDOM)
            return False
        if not believed:
            self._look_in(SOON)
            return False
        if not mine and self._patience > SOON:
            raise PipelineError("joining the group anew brought no partition, although some are nobody's")
        self._doubtful = False
        self._look_in(self._patience)
        self._patience = min(2 * self._patience, MOST)
        return True

    def _look_in(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds


class Group:
    """A consumer group as its coordinator sees it. ``member`` is this member's group.instance.id."""

    def __init__(self, admin: AdminClient, group: str, member: str | None) -> None:
        self._admin = admin
        self._group = group
        self._member = member

    def fits(self, topics: Collection[str], mine: Collection[TopicPartition]) -> bool | None:
        """Tell whether each partition of these topics (^ begins a pattern) is somebody's, and ``mine`` are among them.

        None while the group is rebalancing, or its coordinator does not say. Raises KafkaException where Kafka says
        nothing at all.
        """
        known = self._admin.list_topics(timeout=_WAIT).topics
        try:
            future = self._admin.describe_consumer_groups([self._group], request_timeout=_WAIT)[self._group]
            group = future.result()
        except KafkaException as error:
            logger.debug("group %s cannot be looked at: %s", self._group, error)
            return None
        if group.state != ConsumerGroupState.STABLE:
            return None
        names = list(_subscribed(topics, known))
        there = {TopicPartition(name, number) for name in names for number in known[name].partitions}
        others = {
            TopicPartition(key.topic, key.partition)
            for member in group.members
            if member.assignment is not None and member.group_instance_id != self._member
            for key in member.assignment.topic_partitions
        }
        missing = there - others - set(mine)
        if missing:
            logger.info("group %s: %d partitions are nobody's, such as %s", self._group, len(missing), min(missing))
        return not missing and there.issuperset(mine)


def _subscribed(topics: Collection[str], known: Iterable[str]) -> Iterable[str]:
    """Return those of the known topics that a subscription is for; librdkafka's patterns are POSIX's extended ones."""
    patterns = [re.compile(topic) for topic in topics if topic.startswith("^")]
    return (name for name in known if name in topics or any(pattern.search(name) for pattern in patterns))

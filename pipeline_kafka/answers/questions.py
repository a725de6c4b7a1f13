"""The questions there are, by the names that SQL functions ask them by.

In: nothing. Out: for each a function of a request and its arguments, which yields the rows of the answer, or bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .brokers import check_brokers
from .groups import committed_offsets, group_coordinator, group_members, groups
from .old_groups import zookeeper_members, zookeeper_offsets
from .peek import peek
from .positions import offsets_for_times, positions
from .progress import group_progress
from .properties import refuse_property
from .registered import registered_brokers
from .replays import messages, replay_range
from .taking_over import group_start
from .topics import topic_partitions, topic_watermarks, topics

QUESTIONS: dict[str, Callable[..., Iterator[dict[str, Any]] | Iterator[bytes]]] = {
    function.__name__: function
    for function in (
        messages,
        offsets_for_times,
        peek,
        positions,
        refuse_property,
        check_brokers,
        registered_brokers,
        replay_range,
        topics,
        topic_partitions,
        topic_watermarks,
        group_coordinator,
        groups,
        group_members,
        committed_offsets,
        zookeeper_offsets,
        zookeeper_members,
        group_progress,
        group_start,
    )
}

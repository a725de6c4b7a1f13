"""Where a pipeline works, and what it says of itself.

In: nothing. Out: the types between pipelines and those who run them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event

from .hearing import Ear
from .model import Consumer


@dataclass(slots=True)
class Progress:
    """What a pipeline last did, for the workers table: times are time.time(), 0.0 for never."""

    partitions: int = 0
    last_poll: float = 0.0
    last_progress: float = 0.0
    last_error: str | None = None
    last_error_at: float = 0.0
    ear: Ear = field(default_factory=Ear)  # why Kafka cannot be spoken to, over all its pipelines
    called: Event = field(default_factory=Event)  # who waits for Kafka is to look up: it is elsewhere now, or work ends

    def fail(self, error: str) -> None:
        """Take note of trouble that there is now."""
        self.last_error, self.last_error_at = error, time.time()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline works: a database, a consumer group, the worker's own name; ``lane_of`` a consumer's id or None.

    ``instance`` is the same whenever a worker of the same slot comes back: it makes it a static member of its group.
    """

    dsn: str
    group: str
    instance: str
    lane_of: int | None = None

    @property
    def member(self) -> str | None:
        """Return the group.instance.id; None for a lane, which is in no group."""
        return self.instance if self.lane_of is None else None

    def has(self, consumer: Consumer) -> bool:
        """Tell whether a consumer is read here."""
        return consumer.group_id == self.group and self.lane_of in (None, consumer.id)

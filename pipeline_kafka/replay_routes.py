"""What a replay adds to routes: an end in each partition, and how many messages it reads at the most.

In: the same as for a consumer. Out: the same, cut off where the replay ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from .batch import Batch
from .message import when
from .model import Consumer, TopicPartition
from .offsets import Move
from .routes import Part, Routes


class ReplayRoutes(Routes):
    """The routes of one replay. ``ends`` are the offsets it stops before, ``left`` the messages it may still pass."""

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        super().__init__()
        self.ends = ends
        self.left = math.inf

    def over(self) -> bool:
        """Tell whether there is nothing left to read, once what is being loaded has been committed."""
        at = {key: offset for (_, key), offset in self.standing.items()}
        return self.left <= 0 or all(at.get(key, 0) >= end for key, end in self.ends.items())

    def wanted(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where to read each partition from; those that have been read to their end are left out."""
        if self.left <= 0:
            return {}
        return {key: offset for key, offset in super().wanted(keys).items() if offset < self.ends.get(key, 0)}

    def retreat(self, consumer: Consumer, moves: Mapping[TopicPartition, Move]) -> None:
        """Let the replay stand where it stood before these moves, which were not made."""
        super().retreat(consumer, moves)
        self.left += sum(move.messages for move in moves.values())

    def parts(self, batch: Batch) -> dict[int, Part]:
        """Return the replay's part of a batch. Raises PositionLost as Routes.parts() does."""
        batch.cut(self.ends)
        parts = super().parts(batch)
        if self.left < math.inf:
            for consumer_id, part in parts.items():
                self._limit(consumer_id, part)
        return parts

    def _limit(self, consumer_id: int, part: Part) -> None:
        """Drop what goes beyond the messages that are left.

        All partitions are moved, most of them by nothing: so no two processes can count the same messages as left.
        """
        messages, part.messages = part.messages, []
        for key, move in part.moves.items():
            mine, messages = messages[: move.messages], messages[move.messages :]
            if len(mine) > self.left:
                move.next = mine[int(self.left)].offset() or 0
                mine = mine[: int(self.left)]
                move.messages, move.last_timestamp = len(mine), when(mine[-1]) if mine else None
                self.standing[consumer_id, key] = move.next
            self.left -= len(mine)
            part.messages += mine
        for (_, key), offset in self.standing.items():
            part.moves.setdefault(key, Move(offset, offset, 0))

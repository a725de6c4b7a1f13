"""How far a consumer goes past its bad messages: not past the first, past so many, or past all.

In: a part of a batch with its bad messages. Out: where to stop loading it, and the offsets that are left then.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from confluent_kafka import Message

from .decoders.payload import Payload
from .message import key_of, when
from .model import TopicPartition
from .offsets import Move
from .why import Bad

Place = tuple[int, int]  # of a message in a batch: the number of its partition there, its offset


class Limit:
    """Counts the bad messages of one consumer's part of a batch. ``room`` is how many may be passed.

    ``refused`` are those that a decoder has refused; those that the server refuses come in Kafka's order.
    """

    def __init__(self, room: float, moves: Mapping[TopicPartition, Move], payload: Payload, refused: list[Bad]) -> None:
        self.room = room
        self._moves = moves
        self._numbers = {key: number for number, key in enumerate(moves)}
        self._length = len(payload)
        self._last = max(room, 1)  # counted from 1: the bad message that nothing is loaded behind
        self._indexes: list[int] = []
        if refused and room < math.inf:
            places = [self.place(message) for message in payload.messages]
            self._indexes = sorted(bisect_left(places, self.place(bad.message)) for bad in refused)

    def place(self, message: Message) -> Place:
        """Return where in the batch a message is: places sort as the messages are loaded."""
        return self._numbers[key_of(message)], message.offset() or 0

    def end(self, start: int = 0, found: int = 0) -> int:
        """Return the index in the payload to stop at, with the server having refused ``found`` before ``start``."""
        if self._last == math.inf:
            return self._length
        left = int(self._last) - found
        if left <= 0:
            return start
        return max(start, self._indexes[left - 1]) if left <= len(self._indexes) else self._length

    def cut(self, bad: Sequence[Bad]) -> Bad | None:
        """Return which of all bad messages, in the order of their places, the consumer stops at; None if at none."""
        return bad[int(self._last) - 1] if len(bad) >= self._last else None

    def left(self, last: Bad, messages: Sequence[Message]) -> dict[TopicPartition, Move]:
        """Return the moves that take back what a claim for all ``messages`` of the part has taken beyond ``last``.

        The consumer then stands before that message if there is no room for it, else behind it.
        """
        partition, offset = self.place(last.message)
        back = {}
        for number, (key, move) in enumerate(self._moves.items()):
            if number < partition:
                continue
            stop = move.start if number > partition else offset + (self.room > 0)
            beyond = [m for m in messages if key_of(m) == key and (m.offset() or 0) >= stop]
            kept = [m for m in messages if number == partition and key_of(m) == key and (m.offset() or 0) < stop]
            nulls = sum(m.value() is None for m in beyond)
            back[key] = Move(move.next, stop, -len(beyond), -nulls, when(kept[-1]) if kept else None)
        return back

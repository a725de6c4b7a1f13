"""How far a consumer goes past its bad messages: the index in the payload, and the offsets that are left."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from pipeline_kafka.decoders.payload import Payload
from pipeline_kafka.limit import Limit
from pipeline_kafka.model import TopicPartition
from pipeline_kafka.offsets import Move
from pipeline_kafka.why import Bad, Why

WHY = Why("22P02", "bad")


class Loaded:
    """A payload of which only the messages matter."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages

    def __len__(self) -> int:
        return len(self.messages)


def message(partition: int, offset: int, value: bytes | None = b"") -> Message:
    return Message(topic="t", partition=partition, offset=offset, value=value)


def limit(room: float, messages: Sequence[Message], refused: Sequence[Message] = ()) -> Limit:
    moves: dict[TopicPartition, Move] = {}
    for each in [*messages, *refused]:
        moves.setdefault(TopicPartition("t", each.partition() or 0), Move(0, 10, 5))
    payload = cast(Payload, Loaded(messages))
    return Limit(room, moves, payload, [Bad(each, WHY) for each in refused])


def test_without_a_limit_all_is_loaded() -> None:
    messages = [message(0, n) for n in range(4)]
    without = limit(math.inf, messages, [message(0, 4), message(0, 5)])
    assert (without.end(), without.end(2, 1)) == (4, 4)
    assert without.cut([Bad(message(0, 4), WHY)]) is None


@given(
    kinds=st.lists(st.sampled_from(["good", "refused by the decoder", "refused by the server"]), max_size=12),
    room=st.integers(0, 5),
)
def test_loading_ends_where_counting_all_bad_messages_would_end_it(kinds: list[str], room: int) -> None:
    """The server's refusals are only found as they are met; the decoder's are known before."""
    all_messages = [message(0, n) for n in range(len(kinds))]
    payload = [m for m, kind in zip(all_messages, kinds, strict=True) if kind != "refused by the decoder"]
    refused = [m for m, kind in zip(all_messages, kinds, strict=True) if kind == "refused by the decoder"]
    tried = limit(room, payload, refused)
    bad = [Bad(m, WHY) for m in refused]
    start, end = 0, tried.end()
    while start < end:
        start += 1
        if kinds[payload[start - 1].offset() or 0] == "refused by the server":
            bad.append(Bad(payload[start - 1], WHY))
            end = tried.end(start, len(bad) - len(refused))
    last = tried.cut(sorted(bad, key=lambda each: each.message.offset() or 0))

    places = [n for n, kind in enumerate(kinds) if kind != "good"]
    allowed = max(room, 1)
    assert (last.message.offset() if last else None) == (places[allowed - 1] if len(places) >= allowed else None)
    reached = places[allowed - 1] if len(places) >= allowed else len(kinds)
    assert start == sum((each.offset() or 0) <= reached for each in payload)


def test_what_lies_behind_the_last_is_taken_back() -> None:
    messages = [message(p, o, None if o == 1 else b"") for p, o in itertools.product((2, 0, 1), range(4))]
    moves = {TopicPartition("t", partition): Move(0, 7, 4, 1) for partition in (2, 0, 1)}
    for room, kept in ((0, 2), (3, 3)):
        tried = Limit(room, moves, cast(Payload, Loaded(messages)), [])
        back = tried.left(Bad(message(0, 2), WHY), messages)
        taken = {key.partition: (move.start, move.next, move.messages, move.nulls) for key, move in back.items()}
        assert taken == {0: (7, kept, kept - 4, 0), 1: (7, 0, -4, -1)}

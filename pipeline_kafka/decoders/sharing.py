"""One topic into many relations: what several consumers make of the same messages is made once.

In: the parts of a batch. Out: each decoded; those that differ in no more than the relation's name share their lines.
"""

from __future__ import annotations

from confluent_kafka import Message

from ..model import Consumer, Relation
from . import decode
from .copying import CopyPayload
from .payload import Decoded


class Sharing:
    """Decodes the parts of one batch, and then goes with it: it keeps what it has decoded."""

    def __init__(self) -> None:
        self._last: dict[object, tuple[list[Message], Decoded]] = {}

    def decode(self, consumer: Consumer, relation: Relation, messages: list[Message]) -> Decoded:
        """Decode a part as decoders.decode() does. Raises Misfit."""
        way = consumer.reading, relation.shape
        before, decoded = self._last.get(way, ([], None))
        if decoded is not None and messages == before:
            assert isinstance(decoded.payload, CopyPayload)
            return decoded._replace(payload=decoded.payload.into(relation))
        decoded = decode(consumer, relation, messages)
        if isinstance(decoded.payload, CopyPayload) and not decoded.rejects:  # why one is refused may name the relation
            self._last[way] = messages, decoded
        return decoded

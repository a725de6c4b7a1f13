"""What the loader is given, and what it answers.

In: nothing. Out: the types between the pipeline, the routes and the loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from .decoders.payload import Decoded
from .model import Consumer, Relation, TopicPartition
from .offsets import Move


@dataclass(slots=True)
class Work:
    """One consumer's part of a batch: ``messages``, decoded for its relation, and the offsets they move."""

    consumer: Consumer
    relation: Relation
    decoded: Decoded
    moves: dict[TopicPartition, Move]
    messages: Sequence[Message]
    failures: int = 0  # in a row, before this batch


@dataclass(frozen=True, slots=True)
class Failure:
    """A consumer's part of a batch was not loaded, or not to its end.

    Try again in ``retry_in`` seconds; None: the consumer was stopped, and stands where the database says.
    """

    retry_in: float | None
    counts: bool = True  # as one more failure in a row
    slow: bool = False  # it took longer than others should wait


Outcomes = dict[int, Failure | None]  # consumer's id -> None where its part was loaded

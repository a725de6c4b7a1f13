"""Where a topic's partitions begin and end, and where in them a time is.

In: a request, a topic or a pattern of topics. Out: rows for seek() and wait_for(), and those of offsets_for_times().
"""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec

from ..message import moment
from ..model import matches
from .client import EARLIEST, LATEST, Kafka, Place, no_partition
from .protocol import Request, Unanswered
from .topics import Row


def positions(
    request: Request, topic: str, exclude: str | None, partition: int | None, milliseconds: int | None
) -> Iterator[Row]:
    """Yield each partition of a topic, or of those that a pattern (^…) matches; or the one that is named.

    A row has ``topic_id``, ``low`` (the first offset there is), ``high`` (the one behind the last message), ``end``
    (the one behind the last that may be read now: an open transaction holds back what follows it), and with
    ``milliseconds`` (since 1970) ``at``: the first offset of that time or later, None where there is none yet.
    """
    kafka = Kafka(request)
    places = _places(kafka, topic, exclude, partition)
    ids = _topic_ids(kafka, {name for name, _ in places})
    low, high = (kafka.offsets(places, spec) for spec in (EARLIEST, LATEST))
    end = kafka.offsets(places, LATEST, IsolationLevel.READ_COMMITTED)
    at = _at(kafka, places, milliseconds) if milliseconds is not None else {}
    for place in places:
        name, number = place
        here = {"low": low[place].offset, "high": high[place].offset, "end": end[place].offset}
        found = at.get(place)
        yield {"topic": name, "partition": number, "topic_id": ids[name], **here, "at": found and found.offset}


def offsets_for_times(request: Request, topic: str | None, milliseconds: int) -> Iterator[Row]:
    """Yield each partition of a topic, and its first message of a time (ms since 1970) or later; None for none."""
    kafka = Kafka(request)
    for (_, number), found in _at(kafka, _places(kafka, one_topic(topic), None, None), milliseconds).items():
        when = moment(found.timestamp) if found else None
        yield {"partition": number, "kafka_offset": found and found.offset, "kafka_timestamp": when}


def one_topic(topic: str | None) -> str:
    """Return a topic's name. Raises Unanswered where it is none."""
    if topic is None or topic.startswith("^"):
        said = "the topic is NULL" if topic is None else f'"{topic}" is a pattern'
        raise Unanswered("22023", said, hint="Name one topic: topics() shows those there are.")
    return topic


def _places(kafka: Kafka, topic: str, exclude: str | None, partition: int | None) -> list[Place]:
    """Return the partitions meant, sorted. Raises Unanswered where there is none."""
    if topic.startswith("^"):
        there = {name: known for name, known in kafka.metadata().topics.items() if matches(topic, exclude, name)}
        if not there:
            raise Unanswered("42704", f'no topic matches "{topic}"', hint="topics() shows those there are.")
    else:
        there = {topic: kafka.metadata(topic).topics[topic]}
    places = sorted((name, number) for name, known in there.items() for number in known.partitions)
    if partition is None:
        return places
    chosen = [place for place in places if place[1] == partition]
    if not chosen:
        raise no_partition(topic, partition, len(places))
    return chosen


def _topic_ids(kafka: Kafka, topics: set[str]) -> dict[str, str]:
    futures = kafka.admin().describe_topics(TopicCollection(sorted(topics)), request_timeout=kafka.left())
    return {name: str(kafka.wait(future, f'topic "{name}"').topic_id) for name, future in futures.items()}


def _at(kafka: Kafka, places: list[Place], milliseconds: int) -> dict[Place, ListOffsetsResultInfo | None]:
    """Return the first message of a time or later in each partition; None where there is none."""
    spec = OffsetSpec.for_timestamp(milliseconds)
    found = kafka.offsets(places, spec, IsolationLevel.READ_COMMITTED)
    return {place: result if result.offset >= 0 else None for place, result in found.items()}

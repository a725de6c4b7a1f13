"""Some messages of a topic, read without a group, a table or a trace.

In: a request and a place. Out: rows of peek(), peek_json() and peek_bytes().
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..kafka import error_of
from ..message import headers_json, timestamp_type, when
from .client import Kafka
from .positions import one_topic, positions
from .protocol import Request, Unanswered
from .topics import Row

BEGINNING, END = -2, -1
MOST = 10_000  # messages of a partition
MOST_BYTES = 64_000_000  # of all messages together: the session holds them
_OWN = {
    "enable_partition_eof": True,
    "auto_offset_reset": "error",
    "fetch_wait_max_ms": 10,  # the end of a partition is only told by an answer that is empty
    "queued_max_messages_kbytes": 16_384,
}
_WIDER = 8  # times as far back, where the last offsets hold too few messages
_LOOK = 0.1  # seconds between looks at the time


def peek(
    request: Request, topic: str | None, partition: int | None, kafka_offset: int | None, n: int | None
) -> Iterator[Row]:
    """Yield up to ``n`` messages of each partition, or of the one named: from an offset on, or the last ones.

    ``kafka_offset`` is an offset, BEGINNING, or END as None is: the last ``n``. Messages of open and aborted
    transactions are passed over, unless the property isolation.level says otherwise.
    """
    if n is None or not 1 <= n <= MOST:
        raise Unanswered("22023", f"n is {'NULL' if n is None else n}, not 1 to {MOST}")
    kafka = Kafka(request)
    consumer = kafka.consumer(**_OWN)
    left = MOST_BYTES
    for place in positions(request, one_topic(topic), None, partition, None):
        low, end = place["low"], place["high" if kafka.reads_uncommitted() else "end"]
        reader = _Reader(kafka, consumer, place["topic"], place["partition"], end)
        if kafka_offset is None or kafka_offset == END:
            messages = iter(reader.last(n, low))
        else:
            messages = reader.first(n, _start(place, kafka_offset))
        for message in messages:
            left -= len(message)
            if left < 0:
                raise Unanswered("54000", f"the messages have more than {MOST_BYTES:,} bytes", hint="Ask for fewer.")
            yield _row(message)


def _start(place: Row, kafka_offset: int) -> int:
    low, high = int(place["low"]), int(place["high"])
    if kafka_offset == BEGINNING:
        return low
    if not low <= kafka_offset <= high:
        where = f"{place['topic']}[{place['partition']}]"
        raise Unanswered("22023", f"{where} holds offsets {low} to {high}, not {kafka_offset}")
    return kafka_offset


class _Reader:
    """Reads one partition up to an end."""

    def __init__(self, kafka: Kafka, consumer: Consumer, topic: str, partition: int, end: int) -> None:
        self._kafka = kafka
        self._consumer = consumer
        self._place = (topic, partition)
        self._end = end

    def first(self, n: int, start: int) -> Iterator[Message]:
        """Yield the first ``n`` messages from an offset on."""
        for _, message in zip(range(n), self._read(start), strict=False):
            yield message

    def last(self, n: int, low: int) -> deque[Message]:
        """Return the last ``n`` messages, from the least offset on. Gaps make it begin anew, further back."""
        back = n
        while True:
            start = max(low, self._end - back)
            found = deque(self._read(start), maxlen=n)
            if len(found) == n or start == low:
                return found
            back *= _WIDER

    def _read(self, start: int) -> Iterator[Message]:
        if start >= self._end:
            return
        self._consumer.assign([TopicPartition(*self._place, start)])
        while True:
            message = self._poll()
            error = message.error()
            if error is None:
                if (message.offset() or 0) < self._end:
                    yield message
                if (message.offset() or 0) >= self._end - 1:
                    return
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            elif not error.retriable():
                raise self._kafka.unanswered(error, f"{self._place[0]}[{self._place[1]}]")

    def _poll(self) -> Message:
        while True:
            try:
                message = self._consumer.poll(min(_LOOK, self._kafka.left()))
            except KafkaException as error:
                raise self._kafka.unanswered(error_of(error)) from None
            if message is not None:
                return message


def _row(message: Message) -> Row:
    """Return a message as JSON can hold it: bytes in base64."""
    return {
        "partition": message.partition(),
        "kafka_offset": message.offset(),
        "kafka_timestamp": when(message),
        "timestamp_type": timestamp_type(message),
        "key": message.key(),
        "value": message.value(),
        "headers": headers_json(message),
    }

"""One consumer group's work in a worker: reader, decoders, loader and offsets, put together.

In: the catalog's snapshots, as they come. Out: rows, dead letters and offsets in PostgreSQL, then Kafka's commit.

Two threads: this one reads and decodes batch n+1 while the loader's writes batch n. The database connection is the
loader's; this thread uses it only after settle(), when nothing is being loaded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import psycopg
from confluent_kafka import KafkaError

from . import catalog, consumer_state, kafka, starts
from .catalog import Snapshot
from .consumer import Batch, Reader
from .database import connect
from .decoders import decode
from .decoders.payload import Misfit
from .errors import PositionLost
from .loader import Failure, Loader, Outcomes, Work
from .log import logger
from .model import Consumer, Relation, TopicPartition
from .offsets import Move
from .routes import Part, Routes

IDLE_WAIT = 0.25  # seconds a poll waits for a first message: how soon a change of the catalog is noticed
BUSY_WAIT = 0.005  # the same while a batch is being loaded
LOOK_EVERY = 1.0  # seconds between looks at the watermarks
STAY_EVERY = 5.0  # seconds a load may take before the group is told that this member lives
REVOKE_WAIT = 30.0  # seconds a load may take to end when its partitions are asked for


@dataclass(slots=True)
class Progress:
    """What a pipeline last did, for the workers table: times are time.time(), 0.0 for never."""

    partitions: int = 0
    last_poll: float = 0.0
    last_progress: float = 0.0
    last_error: str | None = None


class Pipeline:
    """Reads one group's topics and loads them, from __init__ to close(), in the thread that calls step()."""

    def __init__(self, dsn: str, group: str, instance: str, snapshot: Snapshot, progress: Progress) -> None:
        self.group = group
        self.outdated = False  # set from any thread: Kafka is reached differently now
        self.progress = progress
        self.watermarks: dict[TopicPartition, tuple[int, int]] = {}
        self._look_at = 0.0
        self.snapshot = snapshot
        self._offered = snapshot
        self._routes = Routes()
        self._relations: dict[int, Relation] = {}
        self._loading: Future[Outcomes] | None = None
        self._works: list[Work] = []
        self._failed: set[int] = set()  # consumers' ids, since the partitions were last aligned
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._connection = connect(dsn, f"pipeline_kafka loader {instance}")
        self._loader = Loader(self._connection)
        self._admin = kafka.admin_client(snapshot.brokers, snapshot.properties)
        self._reader = Reader(
            kafka.consumer_settings(snapshot.brokers, snapshot.properties, group, instance, self._on_kafka_error),
            self._on_assign,
            self._on_revoke,
        )
        self._take_up(snapshot)

    def offer(self, snapshot: Snapshot) -> None:
        """Hand over a newer snapshot, from any thread; the next step takes it up."""
        self._offered = snapshot

    def step(self) -> None:
        """Take what has come, decode it while the batch before is loaded, and hand it to the loader.

        Raises psycopg.Error or KafkaException where a side is out of reach: close the pipeline then, make a new one.
        """
        if self._offered is not self.snapshot:
            self._take_up(self._offered)
        if self._routes.wake():
            self._align()
        batch = self._take()
        self.progress.last_poll = time.time()
        self._look_at_watermarks()
        try:
            self._hand_over(batch)
        except PositionLost as error:
            logger.info("offsets are read again: %s", error)
            self._stand_again()
        if batch.lost:
            self._lose(batch.lost)
        for topic, reason in batch.refused.items():
            self._refuse(topic, reason)

    def close(self, wait: float, *, leave: bool) -> None:
        """End, giving the batch in hand ``wait`` seconds to be committed; what is not, is rolled back.

        ``leave`` gives the partitions to other workers now; else they are kept for this one to come back.
        """
        try:
            self._settle(patience=wait)
        except Exception as error:
            logger.info("the batch in hand is left to whoever reads next: %s", error)
        if leave:
            self._reader.leave()
        self._reader.close()
        self._thread.shutdown(wait=False)
        self._connection.close()

    def partitions(self) -> int:
        """Return how many partitions are assigned."""
        return len(self._reader.positions)

    def _look_at_watermarks(self) -> None:
        if time.monotonic() >= self._look_at:
            self.watermarks = self._reader.watermarks()
            self._look_at = time.monotonic() + LOOK_EVERY

    # Reading ------------------------------------------------------------------------------------------------

    def _take(self) -> Batch:
        if not self._routes.consumers:
            time.sleep(IDLE_WAIT)
            return Batch()
        size, most = self._routes.bounds()
        batch = self._reader.take(size, most, BUSY_WAIT if self._loading else IDLE_WAIT)
        patience = time.monotonic() + self._routes.timeout()
        while batch.next and self._busy() and time.monotonic() < patience and batch.count < size and batch.bytes < most:
            self._reader.more(batch, size, most, BUSY_WAIT)
        return batch

    def _hand_over(self, batch: Batch) -> None:
        works = self._decode(self._routes.parts(batch))
        if works or not self._busy():
            self._settle()
        failed, self._failed = self._failed, set()
        for work in [work for work in works if work.consumer.id in failed]:
            self._routes.retreat(work.consumer, work.moves)  # it follows what failed: read it again with that
            works.remove(work)
        if works:
            self._works = works
            self._loading = self._thread.submit(self._loader.load, works)
        if failed:
            self._align()

    def _decode(self, parts: dict[int, Part]) -> list[Work]:
        works = []
        for consumer_id, part in parts.items():
            consumer = self._routes.consumers[consumer_id]
            try:
                works.append(self._work(consumer, part))
            except (Misfit, psycopg.errors.UndefinedTable) as error:
                self._settle()
                self._fail(consumer, error, part.moves)
        return works

    def _work(self, consumer: Consumer, part: Part) -> Work:
        relation = self._relation(consumer)
        decoded = decode(consumer, relation, part.messages)
        if decoded.nulls:
            for message in part.messages:
                if message.value() is None:
                    part.moves[TopicPartition(message.topic() or "", message.partition() or 0)].nulls += 1
        return Work(consumer, relation, decoded, part.moves, self._routes.failures(consumer))

    def _relation(self, consumer: Consumer) -> Relation:
        if consumer.id not in self._relations:
            self._settle()
            self._relations[consumer.id] = catalog.describe(self._connection, consumer.relation)
        return self._relations[consumer.id]

    def _fail(self, consumer: Consumer, error: Exception, moves: Mapping[TopicPartition, Move]) -> None:
        """Note a failure that shows before anything is loaded; nothing is being loaded now."""
        if isinstance(error, Misfit):
            self._note(consumer, "42804", str(error), moves)
            return
        with self._connection.cursor() as cursor:
            consumer_state.stop(cursor, consumer, "42P01", str(error))
        self._take_note(consumer, Failure(retry_in=None), moves)

    def _refuse(self, topic: str, reason: str) -> None:
        self._settle()
        for consumer in self._routes.of_topic(topic):
            self._note(consumer, "42501", f"Kafka does not let topic {topic} be read: {reason}", {})
        self._align()

    def _note(self, consumer: Consumer, sqlstate: str, error: str, moves: Mapping[TopicPartition, Move]) -> None:
        failures = self._routes.failures(consumer) + 1
        with self._connection.cursor() as cursor:
            wait = consumer_state.note(cursor, consumer, sqlstate, error, failures)
        self._take_note(consumer, Failure(wait), moves)

    # Loading ------------------------------------------------------------------------------------------------

    def _busy(self) -> bool:
        return self._loading is not None and not self._loading.done()

    def _settle(self, patience: float = math.inf) -> None:
        """Wait for the batch being loaded, staying in the group meanwhile; cancel it after ``patience`` seconds.

        Raises what the loader raised.
        """
        until = time.monotonic() + patience
        while self._loading is not None:
            wait([self._loading], min(STAY_EVERY, max(until - time.monotonic(), 0.1)))
            if self._loading is None:  # a callback inside stay() has settled it
                return
            if self._loading.done():
                self._take_outcomes()
            elif patience == math.inf:
                self._reader.stay()
            elif time.monotonic() >= until:
                self._connection.cancel_safe(timeout=2.0)
                until = time.monotonic() + patience

    def _take_outcomes(self) -> None:
        assert self._loading is not None
        loaded, self._loading = self._loading, None
        works, self._works = self._works, []
        outcomes = loaded.result()
        for work in works:
            self._take_note(work.consumer, outcomes[work.consumer.id], work.moves)
        self.progress.last_progress = time.time()
        self._reader.commit(self._routes.reached({key for work in works for key in work.moves}))

    def _take_note(self, consumer: Consumer, failure: Failure | None, moves: Mapping[TopicPartition, Move]) -> None:
        self._routes.settle(consumer, failure)
        if failure is not None:
            self._routes.retreat(consumer, moves)
            self._relations.pop(consumer.id, None)
            self._failed.add(consumer.id)

    # Where to read ------------------------------------------------------------------------------------------

    def _align(self) -> None:
        self._reader.align(self._routes.wanted(self._reader.positions))

    def _on_assign(self, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._settle(REVOKE_WAIT)
        starts.stand(self._connection, self._admin, self._routes, keys)
        return self._routes.wanted(keys)

    def _on_revoke(self, keys: list[TopicPartition], lost: bool) -> None:
        if not lost:
            self._settle(REVOKE_WAIT)
        self._routes.forget(keys)

    def _take_up(self, snapshot: Snapshot) -> None:
        """Act on a changed catalog: new consumers are given their start, then their topics are asked for."""
        self._settle()
        mine = [consumer for consumer in snapshot.consumers if consumer.group_id == self.group]
        starts.begin(self._connection, self._admin, mine)
        self._routes.replace(mine)
        self._relations.clear()
        self._stand_again()
        self._reader.subscribe(self._routes.subscription())
        self.snapshot = snapshot

    def _stand_again(self) -> None:
        self._settle()
        starts.stand(self._connection, self._admin, self._routes, list(self._reader.positions))
        self._align()

    def _lose(self, keys: list[TopicPartition]) -> None:
        self._settle()
        for consumer in starts.lose(self._connection, self._admin, self._routes, keys):
            self._take_note(consumer, Failure(retry_in=None), {})
        for key, offset in self._routes.wanted(keys).items():
            self._reader.seek(key, offset)
        self._align()

    def _on_kafka_error(self, error: KafkaError) -> None:
        self.progress.last_error = error.str()
        logger.warning("Kafka: %s", error.str())

"""One consumer group's work in a worker: reader, decoders, loader and offsets, put together.

In: the catalog's snapshots, as they come. Out: rows, dead letters and offsets in PostgreSQL, then Kafka's commit.
A lane is the same for a single consumer that would hold the others up: see lanes.py.

This thread reads and decodes batch n+1 while the loader's writes batch n, and uses its connection only after settle().
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import psycopg

from . import catalog, consumer_state, kafka, starts
from .batch import Batch
from .catalog import Snapshot
from .consumer import Reader
from .coverage import Coverage, Group
from .database import connect
from .decoders.payload import Misfit
from .decoders.sharing import Sharing
from .errors import PositionLost, Rules
from .loader import Loader
from .loading import Loading
from .log import logger
from .model import Consumer, Relation, TopicPartition
from .offsets import Move
from .place import Place, Progress
from .routes import Part, Routes
from .work import Failure, Work

IDLE_WAIT = 0.25  # seconds a poll waits for a first message: how soon a change of the catalog is noticed
BUSY_WAIT = 0.005  # the same while a batch is being loaded
TELL_EVERY = 1.0  # seconds between commits to Kafka, and between looks at the watermarks
PATIENCE = 3.0  # seconds a statement of one consumer may take while others wait for it
REVOKE_WAIT = 30.0  # seconds a load may take to end when its partitions are asked for


class Pipeline:
    """Reads one group's topics and loads them, from __init__ to close(), in the thread that calls step()."""

    def __init__(self, place: Place, snapshot: Snapshot, progress: Progress) -> None:
        self.place = place
        self.snapshot = replace(snapshot, consumers=())  # the first step takes them up
        self.progress = progress
        self.watermarks: dict[TopicPartition, tuple[int, int]] = {}
        self.room_for_lanes = 0
        self._tell_at = 0.0
        self._begun = time.monotonic()
        self._routes = Routes()
        self._relations: dict[int, Relation] = {}
        self._failed: set[int] = set()  # consumers' ids, since the partitions were last aligned
        self._connection = connect(place.dsn, f"pipeline_kafka loader {place.instance}")
        self._loading = Loading(Loader(self._connection))
        progress.ear.told = None  # by clients before, which may have been told other properties
        to, heard = (snapshot.brokers, snapshot.properties), progress.ear.settings
        self._admin = kafka.admin_client(*to, heard)
        self._watch = starts.TopicWatch(self._admin)
        settings = kafka.consumer_settings(*to, place.group, place.member, heard)
        coverage = Coverage(Group(self._admin, place.group, place.member).fits)
        self._reader = Reader(settings, self._on_assign, self._on_revoke, coverage)

    def step(self, snapshot: Snapshot) -> None:
        """Take what has come, decode it while the batch before is loaded, and hand it to the loader.

        Raises psycopg.Error or KafkaException where a side is out of reach: close the pipeline then, make a new one.
        """
        batch = Batch()
        try:
            if snapshot is not self.snapshot:
                self._take_up(snapshot)
            if self._watch.others(self._routes):
                self._stand_again()
            if self._routes.wake():
                self._align()
            batch = self._take()
            self.progress.last_poll = time.time()
            self._tell()
            self._hand_over(batch)
        except PositionLost as error:  # by seek(), or by another worker
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
        self._admin.poll(0)  # lets the ear know why
        self._tell_kafka()
        if leave:
            self._reader.leave()
        self._reader.close()
        self._loading.close()
        self._connection.close()

    def look(self) -> None:
        """Find out, where there is reason to doubt it, whether Kafka answers; from any thread."""
        self.progress.ear.look(self._admin, self._begun)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the assigned partitions, and which offset of each is read next."""
        return self._reader.positions

    def _tell(self) -> None:
        """From time to time, tell Kafka how far the group is, and note how far the partitions go."""
        if time.monotonic() >= self._tell_at:
            self._tell_kafka()
            self.watermarks = self._reader.watermarks()
            self._tell_at = time.monotonic() + TELL_EVERY

    def _tell_kafka(self) -> None:
        """Best effort: PostgreSQL already knows, and it is PostgreSQL that is asked where to go on."""
        if self.place.lane_of is None:
            self._reader.commit(self.reached())

    def reached(self) -> dict[TopicPartition, int]:
        """Return how far the consumers of each partition are in the database: without what is being loaded."""
        return self._routes.reached(self._reader.positions, [work.moves for work in self._loading.works])

    # Reading ------------------------------------------------------------------------------------------------

    def _take(self) -> Batch:
        if not self._routes.consumers:
            time.sleep(IDLE_WAIT)
            return Batch()
        size, most = self._routes.bounds()
        batch = self._reader.take(size, most, BUSY_WAIT if self._loading.started() else IDLE_WAIT)
        patience = time.monotonic() + self._routes.timeout()
        while batch.next and self._loading.busy() and time.monotonic() < patience and batch.has_room(size, most):
            self._reader.more(batch, size, most, BUSY_WAIT)
        return batch

    def _hand_over(self, batch: Batch) -> None:
        works = self._decode(self._routes.parts(batch))
        if works or not self._loading.busy():
            self._settle()
        failed, self._failed = self._failed, set()
        for work in [work for work in works if work.consumer.id in failed]:
            self._routes.retreat(work.consumer, work.moves)  # it follows what failed: read it again with that
            works.remove(work)
        if works:
            self._loading.start(works)
        if failed:
            self._align()

    def _decode(self, parts: dict[int, Part]) -> list[Work]:
        self._describe(parts)
        works, sharing = [], Sharing()
        for consumer_id, part in parts.items():
            consumer = self._routes.consumers[consumer_id]
            try:
                works.append(self._work(consumer, part, sharing))
            except (Misfit, psycopg.errors.UndefinedTable) as error:
                self._settle()
                self._fail(consumer, error, part.moves)
        return works

    def _work(self, consumer: Consumer, part: Part, sharing: Sharing) -> Work:
        relation = self._relation(consumer)
        decoded = sharing.decode(consumer, relation, part.messages)
        if decoded.nulls:
            part.count_nulls()
        return Work(consumer, relation, decoded, part.moves, part.messages, self._routes.failures(consumer))

    def _describe(self, consumers: Iterable[int]) -> None:
        """Where one is unknown, find out about all that are: many relations by one query cost a fraction."""
        if all(i in self._relations for i in consumers):
            return
        self._settle()
        unknown = {i: c.relation for i, c in self._routes.consumers.items() if i not in self._relations}
        found = catalog.describe_all(self._connection, unknown.values())
        self._relations.update({i: found[oid] for i, oid in unknown.items() if oid in found})

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
            self._note(consumer, "42501", f"Kafka's authorization failed: topic {topic}: {reason}", {})
        self._align()

    def _note(self, consumer: Consumer, sqlstate: str, error: str, moves: Mapping[TopicPartition, Move]) -> None:
        with self._connection.cursor() as cursor:
            wait = consumer_state.note(cursor, consumer, sqlstate, error, self._routes.failures(consumer) + 1, True)
        self._take_note(consumer, Failure(wait), moves)

    # Loading ------------------------------------------------------------------------------------------------

    def _settle(self, patience: float = math.inf) -> None:
        """Wait for the batch being loaded, and take note of how it ended. Raises what the loader raised."""
        try:
            outcomes = self._loading.settle(patience, self._reader.stay)
        except Exception:
            self._routes.forget(list(self._reader.positions))  # where they stand now, only the database knows
            raise
        for work, failure in outcomes:
            self._take_note(work.consumer, failure, work.moves)
        if outcomes:
            self.progress.last_progress = time.time()

    def _take_note(self, consumer: Consumer, failure: Failure | None, moves: Mapping[TopicPartition, Move]) -> None:
        self._routes.settle(consumer, failure)
        if failure is not None:
            if failure.slow and self.room_for_lanes:
                self._routes.apart[consumer.id] = True
            self._routes.retreat(consumer, moves)
            self._relations.pop(consumer.id, None)
            self._failed.add(consumer.id)

    # Lanes --------------------------------------------------------------------------------------------------

    def apart(self) -> dict[int, bool]:
        """Return the consumers (by id) that are to be read in lanes of their own, and whether each is slow."""
        return self._routes.apart

    def note_lane(self, consumer_id: int, reached: Mapping[TopicPartition, int]) -> None:
        """Take note of how far a consumer is in its lane: Kafka is told from here."""
        self._routes.advance(consumer_id, reached)

    def readmit(self, consumer_id: int) -> None:
        """Take a consumer back whose lane has ended, from where it stands now."""
        self._routes.apart.pop(consumer_id, None)
        self._stand_again()

    def follow(self, keys: Iterable[TopicPartition]) -> None:
        """In a lane: read those of these partitions that its consumer reads."""
        self._reader.follow([key for key in keys if self._routes.of_topic(key.topic)])

    # Where to read ------------------------------------------------------------------------------------------

    def _align(self) -> None:
        if self.room_for_lanes and self._routes.part_stragglers(self._reader.positions, self.room_for_lanes):
            self.room_for_lanes = 0  # until they have been looked at
        self._reader.align(self._routes.wanted(self._reader.positions))

    def _on_assign(self, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._settle(REVOKE_WAIT)
        self._stand(keys)
        return self._routes.wanted(keys)

    def _on_revoke(self, keys: list[TopicPartition], lost: bool) -> None:
        if not lost:
            self._settle(REVOKE_WAIT)
        self._routes.forget(keys)

    def _take_up(self, snapshot: Snapshot) -> None:
        """Act on a changed catalog: new consumers are given their start, then their topics are asked for."""
        self._settle()
        mine = [consumer for consumer in snapshot.consumers if self.place.has(consumer)]
        starts.begin(self._connection, self._admin, mine, self.progress.called)
        same = self._routes.replace(mine)
        self._relations = {i: relation for i, relation in self._relations.items() if i in same}
        self._loading.loader.configure(Rules(snapshot.rules), PATIENCE if len(mine) > 1 else 0.0)
        self._stand_again()
        if self.place.lane_of is None:
            self._reader.subscribe(self._routes.subscription())
        self.snapshot = snapshot

    def _stand_again(self) -> None:
        self._settle()
        self._stand(list(self._reader.positions))
        self._align()

    def _stand(self, keys: list[TopicPartition]) -> None:
        for consumer in starts.stand(self._connection, self._admin, self._routes, keys):
            self._take_note(consumer, Failure(retry_in=None), {})

    def _lose(self, keys: list[TopicPartition]) -> None:
        self._settle()
        for consumer in starts.lose(self._connection, self._admin, self._routes, keys):
            self._take_note(consumer, Failure(retry_in=None), {})
        for key, offset in self._routes.wanted(keys).items():
            self._reader.seek(key, offset)
        self._align()

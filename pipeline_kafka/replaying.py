"""A replay's own pipeline: a part of a topic, outside any group, once.

In: a replay's rows in the catalog. Out: what a pipeline writes, and in the end that the replay has finished.
"""

from __future__ import annotations

import math
from typing import Any

import psycopg

from .catalog import Snapshot
from .log import logger
from .model import TopicPartition
from .pipeline import Pipeline
from .place import Place, Progress
from .replay_routes import ReplayRoutes
from .runner import Runner

# The rate is counted from here, as what was read before an outage or a pause says nothing about it.
_BEGIN = """
UPDATE pipeline_kafka.replays r
SET running_since = clock_timestamp(),
    messages_before = (SELECT coalesce(sum(o.messages), 0) FROM pipeline_kafka.offsets o WHERE o.consumer_id = r.id)
WHERE r.id = %s
"""
_ENDS = """
SELECT o.topic, p.partition, p.end_offset
FROM pipeline_kafka.replay_partitions p
JOIN pipeline_kafka.offsets o ON o.consumer_id = p.replay_id AND o.partition = p.partition
WHERE p.replay_id = %s AND o.next_offset < p.end_offset
"""
_LEFT = """
SELECT r.max_messages - (SELECT coalesce(sum(o.messages), 0) FROM pipeline_kafka.offsets o WHERE o.consumer_id = r.id)
FROM pipeline_kafka.replays r WHERE r.id = %s
"""
_FINISH = """
WITH over AS (
    UPDATE pipeline_kafka.replays r SET outcome = 'finished', slot = NULL, ended_at = clock_timestamp()
    FROM pipeline_kafka.consumers c
    WHERE r.id = %s AND r.outcome IS NULL AND c.id = r.id AND c.enabled
    RETURNING r.id)
UPDATE pipeline_kafka.consumers c SET enabled = false FROM over WHERE c.id = over.id
"""


class ReplayPipeline(Pipeline):
    """Reads what is left of a replay. Its routes stop at the replay's end."""

    def __init__(self, place: Place, snapshot: Snapshot, progress: Progress) -> None:
        super().__init__(place, snapshot, progress)
        self._connection.execute(_BEGIN, (place.lane_of,))
        rows = self._connection.execute(_ENDS, (place.lane_of,))
        ends = {TopicPartition(topic, partition): end for topic, partition, end in rows}
        self._routes = self._replayed = ReplayRoutes(ends)

    def go_on(self) -> bool:
        """Read what is left; tell whether the replay has finished, which is then noted."""
        self.follow(self._replayed.ends)
        if not self._replayed.over():
            self._pause_what_ended()
            return False
        self._settle()
        if not self._replayed.over():  # what was being loaded has failed, and is to be read again
            return False
        return self._connection.execute(_FINISH, (self.place.lane_of,)).rowcount == 1

    def _pause_what_ended(self) -> None:
        """Keep librdkafka from fetching on where a partition's end was passed."""
        if any(self._reader.positions.get(key, 0) >= end for key, end in self._replayed.ends.items()):
            self._align()

    def _stand(self, keys: list[TopicPartition]) -> None:
        super()._stand(keys)
        (left,) = self._row(_LEFT)
        self._replayed.left = math.inf if left is None else int(left)

    def _row(self, query: str) -> tuple[Any, ...]:
        row = self._connection.execute(query, (self.place.lane_of,)).fetchone()
        if row is None:
            raise psycopg.errors.NoDataFound(f"replay {self.place.lane_of} is gone")
        return tuple(row)


class ReplayRunner(Runner):
    """Keeps a replay going until it has finished."""

    def _make(self) -> Pipeline:
        return ReplayPipeline(self.place, self.snapshot, self.progress)

    def _after(self, pipeline: Pipeline) -> None:
        assert isinstance(pipeline, ReplayPipeline)
        if pipeline.go_on():
            logger.info("replay %s has finished", self.place.lane_of)
            self.stop()

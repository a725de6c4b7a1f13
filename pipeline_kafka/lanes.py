"""Consumers that would hold the others of their group up, each read by itself until it has caught up.

In: a group's pipeline, and which of its consumers it has set apart. Out: a pipeline for each of those, outside the
group, over the partitions that the group has given to this worker. Offsets move by compare-and-set, so that the two
may overlap for a moment.
"""

from __future__ import annotations

from dataclasses import replace

from .catalog import Snapshot
from .model import TopicPartition
from .pipeline import Pipeline
from .place import Place
from .runner import LAST_WAIT, Runner

SMALL_GAP = 5_000  # messages that a consumer may be behind the others and be read together with them
MAX_LANES = 4  # a group and worker: each has a connection to PostgreSQL and up to kafka.LANE_KBYTES of messages


class Lane(Runner):
    """One consumer's own pipeline. A slow one stays; one that was only behind ends once it has caught up."""

    def __init__(self, place: Place, snapshot: Snapshot, slow: bool) -> None:
        super().__init__(place, snapshot)
        self.fronts: dict[TopicPartition, int] = {}  # the group's partitions, and how far it has read them
        self.reached: dict[TopicPartition, int] = {}  # how far it is in the database
        self._slow = slow

    def _after(self, pipeline: Pipeline) -> None:
        fronts = self.fronts
        pipeline.follow(fronts)
        self.reached = pipeline.reached()
        if not self._slow and fronts and _little_left(self.reached, fronts):
            self.stop()


def _little_left(reached: dict[TopicPartition, int], fronts: dict[TopicPartition, int]) -> bool:
    return sum(max(fronts.get(key, 0) - offset, 0) for key, offset in reached.items()) <= SMALL_GAP


class GroupRunner(Runner):
    """A group's pipeline and its lanes."""

    def __init__(self, place: Place, snapshot: Snapshot) -> None:
        super().__init__(place, snapshot)
        self._lanes: dict[int, Lane] = {}

    def _run_once(self) -> None:
        try:
            super()._run_once()
        finally:
            for lane in self._lanes.values():
                lane.stop()
            for lane in self._lanes.values():
                lane.join(LAST_WAIT)
            self._lanes.clear()

    def _after(self, pipeline: Pipeline) -> None:
        apart = pipeline.apart()
        for consumer_id, slow in apart.items():
            if consumer_id not in self._lanes:
                place = replace(self.place, lane_of=consumer_id, instance=f"{self.place.instance}-{consumer_id}")
                self._lanes[consumer_id] = Lane(place, self.snapshot, slow)
                self._lanes[consumer_id].start()
        for consumer_id, lane in list(self._lanes.items()):
            lane.follow(self.snapshot)
            lane.fronts = dict(pipeline.positions())
            pipeline.note_lane(consumer_id, lane.reached)
            if consumer_id not in apart:
                lane.stop()
            if lane.ended():
                del self._lanes[consumer_id]
                pipeline.readmit(consumer_id)
        pipeline.room_for_lanes = MAX_LANES - len(self._lanes)

"""Keeps one group's pipeline going in a thread of its own, through outages of either side.

In: snapshots and a stop. Out: a pipeline that is made again, with backoff, whenever a side is out of reach.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .catalog import Snapshot
from .consumer_state import backoff
from .errors import describe
from .log import logger
from .model import TopicPartition
from .pipeline import Pipeline, Progress

HEALTHY = 60.0  # seconds after which a pipeline's failures are forgotten
LAST_WAIT = 3.0  # seconds the last batch is given to be committed when the worker stops


class Runner:
    """A thread that steps a pipeline. ``progress`` and watermarks() may be read from any thread."""

    def __init__(self, make: Callable[[Snapshot, Progress], Pipeline], group: str, snapshot: Snapshot) -> None:
        self.group = group
        self.progress = Progress()
        self._make = make
        self._snapshot = snapshot
        self._pipeline: Pipeline | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"group {group}", daemon=True)
        self._thread.start()

    def offer(self, snapshot: Snapshot) -> None:
        """Hand over a newer snapshot; where Kafka is reached differently now, the pipeline is made anew."""
        old, self._snapshot = self._snapshot, snapshot
        if (old.brokers, old.properties) != (snapshot.brokers, snapshot.properties):
            self._pipeline_done(self._pipeline)
        elif self._pipeline is not None:
            self._pipeline.offer(snapshot)

    def watermarks(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return (low, high) of the assigned partitions, as last fetched."""
        return self._pipeline.watermarks if self._pipeline is not None else {}

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        """Wait for it, ``timeout`` seconds at the most."""
        self._thread.join(timeout)

    def _pipeline_done(self, pipeline: Pipeline | None) -> None:
        if pipeline is not None:
            pipeline.outdated = True

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                self._run_once()
                failures = 0
            except Exception as error:
                failures = 1 if time.monotonic() - begun > HEALTHY else failures + 1
                self._say(error)
                self._stopping.wait(backoff(failures))

    def _run_once(self) -> None:
        pipeline = self._make(self._snapshot, self.progress)
        self._pipeline = pipeline
        try:
            while not self._stopping.is_set() and not pipeline.outdated:
                pipeline.step()
                self.progress.partitions = pipeline.partitions()
        finally:
            self._pipeline = None
            self.progress.partitions = 0
            pipeline.close(LAST_WAIT, leave=self._stopping.is_set())

    def _say(self, error: Exception) -> None:
        self.progress.last_error = describe(error)
        logger.warning("group %s: %s: %s", self.group, type(error).__name__, describe(error))
        logger.debug("group %s", self.group, exc_info=error)

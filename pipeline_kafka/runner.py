"""Keeps one group's pipeline going in a thread of its own, through outages of either side.

In: snapshots and a stop. Out: a pipeline that is made again, with backoff, whenever a side is out of reach.
"""

from __future__ import annotations

import gc
import threading
import time

from confluent_kafka import KafkaException

from .catalog import Snapshot
from .consumer_state import backoff
from .errors import describe
from .log import logger
from .pipeline import Pipeline
from .place import Place, Progress
from .steps import NO_BROKER

HEALTHY = 60.0  # seconds after which a pipeline's failures are forgotten
LONGEST = 5.0  # seconds between tries: how long a side that is there again may go unnoticed
LAST_WAIT = 3.0  # seconds the last batch is given to be committed when the worker stops


class Runner:
    """A thread that steps a pipeline. What it tells of itself may be read from any thread."""

    def __init__(self, place: Place, snapshot: Snapshot) -> None:
        self.place = place
        self.snapshot = snapshot
        self.progress = Progress()
        self.pipeline: Pipeline | None = None
        self.looked_at = 0.0  # by time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{type(self).__name__} {place.group}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping.set()
        self.progress.called.set()

    def follow(self, snapshot: Snapshot) -> None:
        """Take up the catalog as it is now; from any thread. Where Kafka is elsewhere, it is tried there at once."""
        changed, self.snapshot = not snapshot.same_kafka(self.snapshot), snapshot
        if changed:
            self.progress.called.set()

    def join(self, timeout: float) -> None:
        """Wait for it, ``timeout`` seconds at the most."""
        self._thread.join(timeout)

    def ended(self) -> bool:
        """Tell whether it has ended."""
        return not self._thread.is_alive()

    def look(self) -> None:
        """Find out, where there is reason to doubt it, whether Kafka answers; from any thread."""
        self.looked_at = time.monotonic()
        pipeline = self.pipeline
        if pipeline is not None:
            pipeline.look()
        if self.progress.ear.trouble is not None:
            self.progress.fail(str(self.progress.ear.trouble))

    def _run(self) -> None:
        failures, tried = 0, self.snapshot
        while self._goes_on():
            if not self.snapshot.same_kafka(tried):
                self.progress.ear.forget()
            tried = self.snapshot
            if not tried.brokers:
                self.progress.ear.trouble = NO_BROKER
                self.progress.called.wait()
                continue
            begun = time.monotonic()
            try:
                self._run_once()
                failures = 0
            except Exception as error:
                failures = 1 if time.monotonic() - begun > HEALTHY else failures + 1
                self._say(error)
            gc.collect()  # a pipeline and its reader know each other, and Kafka's clients have threads and sockets
            if failures:
                self.progress.called.wait(min(backoff(failures), LONGEST))

    def _goes_on(self) -> bool:
        """Tell whether to try again. A call that comes from here on ends what is waited for in that try."""
        self.progress.called.clear()
        return not self._stopping.is_set()

    def _run_once(self) -> None:
        pipeline = self.pipeline = self._make()
        try:
            while not self._stopping.is_set():
                snapshot = self.snapshot
                if not snapshot.same_kafka(pipeline.snapshot):
                    return
                pipeline.step(snapshot)
                self.progress.partitions = len(pipeline.positions())
                self._after(pipeline)
        finally:
            self.pipeline = None
            self.progress.partitions = 0
            pipeline.close(LAST_WAIT, leave=self._stopping.is_set())

    def _make(self) -> Pipeline:
        return Pipeline(self.place, self.snapshot, self.progress)

    def _after(self, pipeline: Pipeline) -> None:
        """What is done after each step."""

    def _say(self, error: Exception) -> None:
        if isinstance(error, KafkaException):
            refusal = self.progress.ear.fail(error.args[0], f'group "{self.place.group}"')
            self.progress.fail(f"{refusal}; {describe(error)}")
        else:
            self.progress.fail(describe(error))
        logger.warning("group %s: %s: %s", self.place.group, type(error).__name__, describe(error))
        logger.debug("group %s", self.place.group, exc_info=error)

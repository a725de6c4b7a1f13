"""The loader in a thread of its own, one batch at a time, so that the next can be read and decoded meanwhile.

In: a batch's work. Out: how each consumer's part of it ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from .loader import Loader
from .work import Failure, Outcomes, Work

STAY_EVERY = 5.0  # seconds a load may take before the group is told that this member lives
CANCEL_WAIT = 2.0  # seconds a request to cancel may take


class Loading:
    """At most one batch under way. Start and settle from one thread."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self.works: list[Work] = []  # of the batch that is not settled yet
        self._future: Future[Outcomes] | None = None

    def start(self, works: list[Work]) -> None:
        """Begin to load a batch; the one before must be settled."""
        assert self._future is None
        self.works = works
        self._future = self._thread.submit(self.loader.load, works)

    def started(self) -> bool:
        """Tell whether a batch is not settled yet."""
        return self._future is not None

    def busy(self) -> bool:
        """Tell whether a batch is being loaded right now."""
        return self._future is not None and not self._future.done()

    def settle(self, patience: float, stay: Callable[[], None]) -> list[tuple[Work, Failure | None]]:
        """Wait for the batch, and return how each part of it ended; nothing where there is none.

        With endless ``patience`` (seconds), ``stay`` is called now and then; it may itself settle. With less, the
        batch is cancelled when that is over. Raises what Loader.load() raised.
        """
        until = time.monotonic() + patience
        while (future := self._future) is not None:
            wait([future], min(STAY_EVERY, max(until - time.monotonic(), 0.1)))
            if future.done():
                self._future = None
                works, self.works = self.works, []
                outcomes = future.result()
                return [(work, outcomes[work.consumer.id]) for work in works]
            if patience == math.inf:
                stay()
            elif time.monotonic() >= until:
                self.loader.connection.cancel_safe(timeout=CANCEL_WAIT)
                until = time.monotonic() + patience
        return []

    def close(self) -> None:
        """Let the thread end after the batch in hand."""
        self._thread.shutdown(wait=False)

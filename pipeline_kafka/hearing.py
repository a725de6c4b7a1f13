"""Why Kafka cannot be spoken to, as far as librdkafka lets it be known, and whether that still holds.

In: librdkafka's error callback and its log. Out: the Refusal that tells most, and one that stands.
"""

from __future__ import annotations

import logging
import math
import re
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from . import steps
from .log import logger
from .steps import Refusal

LOOK_WAIT = 0.5  # seconds Kafka may take to say that it is there
SAY_EVERY = 60.0  # seconds between log entries that say the same
QUIET = 3.0  # seconds without a refusal after which one does not stand any more
_VARYING = re.compile(r"\d+ms|, \d+ identical error\(s\) suppressed")  # what differs between tries of the same
_ANY_TOPIC = "__consumer_offsets"  # asked about instead of all topics; it does not matter what is said of it


def ping(admin: AdminClient, timeout: float) -> None:
    """Ask Kafka for next to nothing. Raises KafkaException where it does not answer within ``timeout`` seconds."""
    admin.list_topics(topic=_ANY_TOPIC, timeout=timeout)


class Ear(logging.Handler):
    """Listens to clients that are made with its ``settings``, and passes their log on to ours.

    ``told`` is what was said since it was last forgotten; ``trouble`` what keeps this worker from Kafka now.
    librdkafka calls it in poll() and the like, in whichever thread that is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: Refusal | None = None
        self.trouble: Refusal | None = None
        self._failed_at = 0.0
        self._said: dict[str, float] = {}
        own = logging.Logger("librdkafka", min(logging.INFO, logger.level or logging.INFO))
        own.addHandler(self)
        self.settings: dict[str, Any] = {"error_cb": self._on_error, "logger": own}

    def fail(self, error: KafkaError, about: str = "") -> Refusal:
        """Take note of an error that ended a client's work; ``about`` names what it is about. Return why that was."""
        refusal = self.reason(error)
        if about and refusal.step is steps.GROUP:
            refusal = refusal._replace(text=f"{about}: {refusal.text}")
        self.trouble, self._failed_at = refusal, time.monotonic()
        return refusal

    def reason(self, error: KafkaError) -> Refusal:
        """Return an error with its step; what was heard before, where the error itself says nothing."""
        if error.code() in steps.VAGUE and self.told is not None:
            return self.told
        return steps.of_error(error)

    def forget(self) -> None:
        """Kafka is to be reached otherwise from now on: what was heard tells nothing of that."""
        self.told = self.trouble = None

    def look(self, admin: AdminClient, begun: float) -> None:
        """Find out whether what was heard still holds, by asking Kafka; ``begun`` is when this client was made.

        A reconnect to one of many brokers, or an idle connection that was closed, is no trouble.
        """
        admin.poll(0)
        if self.told is None and self.trouble is None:
            return
        try:
            ping(admin, LOOK_WAIT)
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            self.trouble = self.told or self.trouble or steps.of_error(error)
        else:
            self.told = None
            if time.monotonic() > max(self._failed_at, begun) + QUIET:
                self.trouble = None

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a line of librdkafka's log on, and hear what it says of connections."""
        line = record.getMessage()
        if logger.isEnabledFor(record.levelno) and self._is_news(line):
            logger.handle(record)
        if line.startswith("FAIL "):
            refusal = steps.of_log(line)
            if self.told is None or refusal.weight > self.told.weight:  # the error callback says the same in more words
                self.told = refusal

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # follows a reason, and has none
            return
        refusal = steps.of_error(error)
        if self._is_news(str(refusal)):
            logger.warning("%s", refusal)
        if self.told is None or refusal.weight >= self.told.weight:
            self.told = refusal

    def _is_news(self, line: str) -> bool:
        """Tell whether a line is to be logged: librdkafka says the same again with each of dozens of tries a second."""
        plain, now = _VARYING.sub("", line), time.monotonic()
        if now < self._said.get(plain, -math.inf) + SAY_EVERY:
            return False
        self._said = {text: at for text, at in self._said.items() if now < at + SAY_EVERY}
        self._said[plain] = now
        return True

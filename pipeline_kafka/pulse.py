"""Whether a client from which nothing comes still knows a broker: one that has forgotten all of them is only silent.

librdkafka takes the brokers it knows from the cluster's answers. A broker that has just been woken may answer that
there is none, and if it was the only one, no request, rebalance or error comes of it any more until bootstrap.servers
are tried again (metadata.recovery.rebootstrap.trigger.ms, five minutes by default).

In: a client, and when it gave something. Out: an error where a new client must be made.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer

QUIET = 10.0  # seconds without a message after which Kafka is asked for something
_WAIT = 5.0  # seconds it may take to answer


class Pulse:
    """Of one client; used in its thread."""

    def __init__(self, client: Consumer) -> None:
        self._client = client
        self.felt()

    def felt(self) -> None:
        """Something came from Kafka."""
        self._ask_at = time.monotonic() + QUIET

    def feel(self, topic: str) -> None:
        """Ask about this topic if nothing has come for a while. Raises KafkaException where there is no answer."""
        if time.monotonic() >= self._ask_at:
            self._client.list_topics(topic, timeout=_WAIT)
            self.felt()

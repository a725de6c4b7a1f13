"""A shop's orders, as they come in.

In: a Kafka cluster. Out: JSON messages on its topic `orders`, one of them bad.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from datetime import UTC, datetime

from tests.testbed.kafka import Kafka

TOPIC = "orders"
PARTITIONS = 4
BACKLOG = 10_000  # orders that are there from the start
RATE = 2000  # orders a second after that
BAD = 30_000  # the number of the order whose quantity is no number
TICK = 0.01  # seconds between looks at how many are due
ITEMS = {"espresso beans 1 kg": 18.90, "filter papers": 3.45, "moka pot": 32.00, "mug": 7.80, "grinder": 119.00}


class Orders:
    """Sends orders: BACKLOG at once, then RATE a second from a thread of its own.

    ``sent`` is how many were handed to Kafka, without those that it refused.
    """

    def __init__(self, kafka: Kafka) -> None:
        self.sent = 0
        self._kafka = kafka
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def make_topic(self) -> None:
        """Create the topic, with the backlog in it."""
        self._kafka.create_topic(TOPIC, PARTITIONS)
        # The first group of a new broker waits while Kafka makes its own topic for groups, as no broker in use does.
        self._kafka.committed("demo", TOPIC)
        self.sent += self._kafka.produce(TOPIC, [self._order() for _ in range(BACKLOG)])

    def start(self) -> None:
        """Let orders come in."""
        self._thread.start()

    def stop(self) -> None:
        """Let no more come in, and return when Kafka has answered for all; may be called again, or before start()."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        producer = self._kafka.producer()
        begun = time.monotonic()
        made = 0
        while not self._stopping.wait(TICK):
            due = int((time.monotonic() - begun) * RATE)
            for _ in range(due - made):
                key, value = self._order()
                producer.produce(TOPIC, value, key, on_delivery=self._answered)
                self.sent += 1
            made = due
            producer.poll(0)
        producer.flush(10)

    def _answered(self, error: object, _: object) -> None:
        if error is not None:
            self.sent -= 1

    def _order(self) -> tuple[str, str]:
        """An order's key and value: one customer's orders stay in their sequence, in one partition."""
        item, price = random.choice(list(ITEMS.items()))
        customer = f"customer-{random.randrange(1000):03d}"
        number = next(self._numbers)
        order = {
            "order_id": number,
            "customer": customer,
            "item": item,
            "quantity": "a few" if number == BAD else random.randint(1, 5),
            "price": price,
            "ordered_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        return customer, json.dumps(order)

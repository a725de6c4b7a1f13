"""What faults are played on: a server, a broker, ways to both that can be broken, two workers, and the loads.

In: a folder and a seed. Out: two topics that flow into two relations each, by a worker of the server's own and by one
from the command line, whose way to the server leads through a proxy, as everybody's way to Kafka does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.crash.site import Site
from tests.faults.load import UNWANTED, MixedLoad, json_message, text_message
from tests.testbed.broker import Broker
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.proxy import Proxy
from tests.testbed.wait import wait_until
from tests.testbed.worker import Worker

TOPICS = {"json": json_message, "text": text_message}  # the format is the topic's name
PARTITIONS, MOST_PARTITIONS = 3, 8
RATE = 60  # messages a second and topic
HELPER_SLOT = 100
PATIENCE = 90  # seconds after a fault until every consumer must go on in every partition
STATEMENT_TIMEOUT = "120s"
QUICK = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "300", "topic.metadata.refresh.interval.ms": "1000"}

Place = tuple[int, str, int]  # consumer's id, topic, partition


class Scene:
    """Everything that faults are played on; start() brings it up, heal() has it whole again, stop() ends it.

    ``resets`` counts those that the server owes to a fault of ours.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.resets = 0
        self.cluster = Cluster(folder / "server")
        self.broker = Broker(folder / "broker")
        self.database = Database(self.cluster, "faults")
        self.loads = {
            topic: MixedLoad(self.broker, topic, maker, PARTITIONS, RATE, f"{seed} {topic}")
            for topic, maker in TOPICS.items()
        }
        self.site: Site
        self.helper: Worker
        self.way_to_kafka: Proxy
        self.way_to_server: Proxy
        self._stack = contextlib.ExitStack()

    # -- life ---------------------------------------------------------------------------------------

    def __enter__(self) -> Scene:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        stack.callback(self.broker.stop)
        stack.callback(self.cluster.stop, "immediate")
        with ThreadPoolExecutor(2) as threads:
            starting = threads.submit(self.broker.start)
            threads.submit(self.cluster.start).result()
            starting.result()
        self.way_to_kafka = stack.enter_context(Proxy(self.broker.proxy_target, self.broker.proxy_address))
        self.way_to_server = stack.enter_context(Proxy(self.cluster.address))
        self.database.create()
        with self.cluster.connect() as admin:  # bounds what we ask; workers must not let it bound them
            admin.execute(f"ALTER DATABASE {self.database.name} SET statement_timeout = '{STATEMENT_TIMEOUT}'")
        self.site = Site(self.database, self.broker, self.broker.proxied_bootstrap)
        stack.callback(lambda: self.site.close())
        for name, value in QUICK.items():
            self.site.set_property(name, value)
        self._consume()
        far = self.way_to_server.address
        self.helper = Worker(self.database.dsn(host=far.host, port=far.port), self.folder / "helper.log", HELPER_SLOT)
        stack.callback(self.helper.stop)
        self.helper.start()
        self.go_on()

    def _consume(self) -> None:
        """Topic x flows into x_open, which takes what is a row, and into x_strict, which refuses some of that."""
        for topic, load in self.loads.items():
            self.broker.create_topic(topic, PARTITIONS)
            for relation, check in (("open", ""), ("strict", f" CHECK (word <> '{UNWANTED}')")):
                self.site.admin.execute(
                    f"CREATE TABLE {topic}_{relation}"
                    f" (n bigint, word text{check}, kafka_partition int, kafka_offset bigint)"
                )
                self.site.begin(topic, f"{topic}_{relation}", format=topic)
            load.start()

    def logs(self) -> list[Path]:
        """The files to look into when it went wrong."""
        return [self.cluster.log_file, self.broker.log_file, self.folder / "helper.log"]

    # -- how it goes --------------------------------------------------------------------------------

    def relations(self) -> list[str]:
        """The relations that are written to."""
        return [f"{topic}_{kind}" for topic in self.loads for kind in ("open", "strict")]

    def reconnect(self) -> None:
        """Connect anew where the server has been away."""
        self.site.reconnect()

    def go_on(self) -> None:
        """Wait until every consumer has passed messages in every partition since now. Raises TimeoutError."""
        before = self.standing()
        wait_until(
            lambda: [place for place, offset in self.standing().items() if offset <= before.get(place, 0)],
            "every consumer goes on in every partition",
            PATIENCE,
            accept=lambda stuck: not stuck,
        )

    def standing(self) -> dict[Place, int]:
        """The next offset of each consumer in each partition that there is, 0 where none is known yet."""
        known = {
            (consumer, topic, partition): offset
            for consumer, topic, partition, offset in self.site.rows(
                """SELECT c.id, c.topic, o.partition, o.next_offset FROM pipeline_kafka.consumers c
                   LEFT JOIN pipeline_kafka.offsets o ON o.consumer_id = c.id"""
            )
        }
        consumers = {(consumer, topic) for consumer, topic, _ in known}
        return {
            (consumer, topic, partition): known.get((consumer, topic, partition), 0)
            for consumer, topic in consumers
            for partition in range(self.loads[topic].partitions)
        }

    def state(self) -> Iterator[str]:
        """How it stands, in lines, for whoever must find out why it does not go on."""
        for query in (
            """SELECT topic, relation::text, state, messages, lag, last_error, retry_at
               FROM pipeline_kafka.consumers_status""",
            "SELECT consumer_id, topic, partition, next_offset FROM pipeline_kafka.offsets ORDER BY 1, 2, 3",
            "SELECT slot, state, pid, partitions, last_poll, last_error FROM pipeline_kafka.workers_status",
            """SELECT pid, application_name, state, wait_event_type, wait_event, now() - query_start, left(query, 60)
               FROM pg_stat_activity WHERE datname = current_database()""",
        ):
            yield from (str(row) for row in self.site.rows(query))

"""A throwaway Apache Kafka broker (KRaft, one node) run from jars.

In: a folder. Out: a broker on 127.0.0.1 with a second listener whose clients go through a proxy of ours.
"""

from __future__ import annotations

import base64
import signal
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.testbed.class_archive import ClassArchive
from tests.testbed.jars import KAFKA_VERSION, kafka_jars
from tests.testbed.java import java
from tests.testbed.kafka import Kafka
from tests.testbed.ports import LOOPBACK, Address, free_port
from tests.testbed.process import Process, plain_environment, run
from tests.testbed.wait import wait_until

START_TIMEOUT = 90
SERVER = "kafka.Kafka"
KRAFT: Mapping[str, str | int] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # A broker that comes back after kill -9 is let in when its old session is over (9 s by default).
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 250,
}
SMALL_BROKER: Mapping[str, str | int] = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.min.isr": 1,
}
# The C1 compiler alone starts sooner and is slower under load.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


LOG_TIMES = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)


class Broker(Kafka):
    """A one-node Kafka cluster in ``folder``; nothing is made until start().

    ``settings`` are server properties on top of KRAFT and SMALL_BROKER. ``heap`` is the JVM's -Xmx. ``fast_start``
    trades throughput for a quicker start (not for measuring). With ``outlive`` the broker goes on when
    this process ends.

    Clients that bootstrap from ``proxied_bootstrap`` are sent to ``proxy_address``, where a Proxy must
    listen that leads to ``proxy_target``.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str | int] | None = None,
        heap: str = "512m",
        fast_start: bool = True,
        outlive: bool = False,
        version: str = KAFKA_VERSION,
    ) -> None:
        self.address = Address(LOOPBACK, free_port())
        self.proxy_target = Address(LOOPBACK, free_port())
        self.proxy_address = Address(LOOPBACK, free_port())
        self.proxied_bootstrap = str(self.proxy_address)
        super().__init__(str(self.address))
        self.folder = folder
        self.log_file = folder / "broker.log"
        self.settings = dict(settings or {})
        self.heap = heap
        self.fast_start = fast_start
        self.outlive = outlive
        self.version = version
        self.process: Process | None = None
        self._controller = Address(LOOPBACK, free_port())

    # -- life -------------------------------------------------------------------------------------

    def start(self, timeout: float = START_TIMEOUT) -> Broker:
        """Start the broker and return when it answers; the first time format its folder.

        Raises RuntimeError with the end of the log when it ends instead, TimeoutError after ``timeout`` s.
        """
        if not (self.folder / "data").exists():
            self._format()
        self.process = Process(
            self._java(SERVER, self.folder / "server.properties"),
            self.log_file,
            env=plain_environment(),
            death_signal=None if self.outlive else signal.SIGKILL,
        )
        wait_until(self._up_or_ended, f"the broker at {self.address} answers", timeout)
        if not self.running:
            raise RuntimeError(f"the broker did not start in {self.folder}:\n{self.log()[-4000:]}")
        return self

    def stop(self, timeout: float = 30) -> None:
        """Shut down in order; kill -9 after ``timeout`` s."""
        if self.process is not None and self.process.stop(signal.SIGTERM, timeout) != -signal.SIGKILL:
            ClassArchive(kafka_jars(self.version)).adopt()

    def restart(self) -> None:
        """Stop and start on the same ports with the same data."""
        self.stop()
        self.start()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill9(self) -> None:
        """kill -9; start() brings it back on the same ports with the same data."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        if self.process is not None:
            self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self.process is not None:
            self.process.send(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self.process is not None and self.process.running

    def log(self) -> str:
        """The broker's log as text."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    # -- parts ------------------------------------------------------------------------------------

    def _format(self) -> None:
        properties = self._write_properties()
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # In one word: an id may begin with a hyphen.
        run(self._java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", properties))

    def _write_properties(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        lines = (self._common() | self._cluster() | self.settings).items()
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines))
        return properties

    def _common(self) -> dict[str, str | int]:
        return {
            **SMALL_BROKER,
            "listeners": f"PLAINTEXT://{self.address},PROXIED://{self.proxy_target}",
            "advertised.listeners": f"PLAINTEXT://{self.address},PROXIED://{self.proxy_address}",
            "log.dirs": str(self.folder / "data"),
        }

    def _cluster(self) -> dict[str, str | int]:
        """What makes it a cluster of its own: it is its own controller."""
        listeners = f"{self._common()['listeners']},CONTROLLER://{self._controller}"
        return {**KRAFT, "controller.quorum.voters": f"1@{self._controller}", "listeners": listeners}

    def _java(self, main_class: str, *arguments: str | Path) -> list[str | Path]:
        jars = kafka_jars(self.version)
        options = [f"-Xmx{self.heap}", *LOG_TIMES, *ClassArchive(jars).options(write=main_class == SERVER)]
        options += FAST_START if self.fast_start else ()
        return [java(), *options, "-cp", f"{jars}/*", main_class, *arguments]

    def _up_or_ended(self) -> bool:
        return not self.running or (_listens(self.address) and self.answers())


def _listens(address: Address) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True

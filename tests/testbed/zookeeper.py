"""A throwaway ZooKeeper, and Kafka brokers that it keeps, as Kafka ran before version 4.

In: folders. Out: a ZooKeeper on 127.0.0.1, brokers registered in it, and a client to look into it with.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.testbed.broker import FAST_START, Broker
from tests.testbed.jars import OLD_KAFKA_VERSION, kafka_jars
from tests.testbed.java import java
from tests.testbed.ports import LOOPBACK, Address, free_port
from tests.testbed.process import Process, plain_environment
from tests.testbed.wait import wait_until

SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
START_TIMEOUT = 60


class ZooKeeper:
    """A standalone ZooKeeper in ``folder``; nothing is made until start(). It dies with the process that made it."""

    def __init__(self, folder: Path, heap: str = "64m") -> None:
        self.address = Address(LOOPBACK, free_port())
        self.folder = folder
        self.log_file = folder / "zookeeper.log"
        self.heap = heap
        self.process: Process | None = None

    def start(self, timeout: float = START_TIMEOUT) -> ZooKeeper:
        """Start it and return when it answers. Raises RuntimeError with its log when it ends instead."""
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "zk.cfg"
        configuration.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        path = f"{kafka_jars(OLD_KAFKA_VERSION)}/*"
        argv: list[str | Path] = [java(), f"-Xmx{self.heap}", *FAST_START, "-cp", path, SERVER, configuration]
        self.process = Process(argv, self.log_file, env=plain_environment())
        wait_until(lambda: not self.running or self.answers(), f"ZooKeeper at {self.address} answers", timeout)
        if not self.running:
            raise RuntimeError(f"ZooKeeper did not start in {self.folder}:\n{self.log()[-4000:]}")
        return self

    def stop(self, timeout: float = 30) -> None:
        """Shut down; kill -9 after ``timeout`` s. start() brings it back on the same port with the same data."""
        if self.process is not None:
            self.process.stop(signal.SIGTERM, timeout)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        if self.process is not None:
            self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self.process is not None:
            self.process.send(signal.SIGCONT)

    def __enter__(self) -> ZooKeeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self.process is not None and self.process.running

    def answers(self) -> bool:
        """Does it let a client in?"""
        try:
            with self.client(timeout=1):
                return True
        except (KazooException, KazooTimeoutError):
            return False

    @contextmanager
    def client(self, chroot: str = "", timeout: float = 10) -> Generator[KazooClient]:
        """A connected client below ``chroot`` (such as /kafka). Raises KazooTimeoutError after ``timeout`` s."""
        client = KazooClient(f"{self.address}{chroot}")
        try:
            client.start(timeout)
            yield client
        finally:
            client.stop()
            client.close()

    def write(self, nodes: Mapping[str, str]) -> None:
        """Set nodes by their whole paths, with those above them made where they are missing."""
        with self.client() as client:
            for path, value in nodes.items():
                client.ensure_path(path)
                client.set(path, value.encode())

    def log(self) -> str:
        """Its log as text."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def _properties(self) -> dict[str, str | int]:
        return {
            "dataDir": str(self.folder / "data"),
            "clientPort": self.address.port,
            "clientPortAddress": self.address.host,
            "tickTime": 500,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
        }


class ZooKeeperBroker(Broker):
    """A broker of Kafka's last version with ZooKeeper mode, registered as ``broker_id`` below ``chroot`` there.

    Several of one ZooKeeper and chroot are one cluster. ``settings`` are server properties, as Broker's.
    """

    def __init__(
        self,
        folder: Path,
        zookeeper: ZooKeeper,
        chroot: str = "/kafka",
        broker_id: int = 1,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(folder, settings, version=OLD_KAFKA_VERSION)
        self.zookeeper = f"{zookeeper.address}{chroot}"
        self.broker_id = broker_id

    def _format(self) -> None:
        """Write server.properties: in ZooKeeper mode the broker formats its folder by itself."""
        self._write_properties()

    def _cluster(self) -> dict[str, str | int]:
        return {
            "broker.id": self.broker_id,
            "zookeeper.connect": self.zookeeper,
            # A broker that comes back after kill -9 finds itself registered until its old session is over.
            "zookeeper.session.timeout.ms": 2000,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
        }

"""Which Kafka the tests use: one that is there, one in a container, or one run from jars."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.testbed.broker import Broker
from tests.testbed.kafka import Kafka
from tests.testbed.wait import wait_until

IMAGE = "confluentinc/cp-kafka:7.9.1"
CONTAINER_SETTINGS = {
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}


class ExternalKafka(Kafka):
    """A Kafka cluster somebody else runs."""

    def start(self) -> Kafka:
        """Return when it answers. Raises TimeoutError after 30 s."""
        wait_until(lambda: self.answers(5), f"KAFKA_BOOTSTRAP_SERVERS={self.bootstrap} answers", 30)
        return self

    def stop(self) -> None:
        """Nothing: it is not ours."""

    def log(self) -> str:
        """Nothing: it is not ours."""
        return ""


class ContainerKafka(Kafka):
    """A one-node KRaft broker in a container, ended by testcontainers whatever happens to us."""

    def __init__(self) -> None:
        super().__init__("")
        self._container: Any = None

    def start(self) -> Kafka:
        """Pull the image if need be and return when the broker answers."""
        from testcontainers.community.kafka import KafkaContainer

        container = KafkaContainer(IMAGE).with_kraft()
        for name, value in CONTAINER_SETTINGS.items():
            container.with_env(name, value)
        self._container = container.start()
        self.bootstrap = container.get_bootstrap_server()
        return self

    def stop(self) -> None:
        """Remove the container."""
        if self._container is not None:
            self._container.stop()

    def log(self) -> str:
        """What the container wrote."""
        return b"".join(self._container.get_logs()).decode(errors="replace") if self._container else ""


def find_kafka(folder: Path) -> ExternalKafka | ContainerKafka | Broker:
    """KAFKA_BOOTSTRAP_SERVERS, else a container where Docker answers, else jars; not started."""
    if bootstrap := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        return ExternalKafka(bootstrap)
    return ContainerKafka() if docker_answers() else Broker(folder)


def docker_answers() -> bool:
    """Is there a Docker engine that answers?"""
    # In a process of its own: where no engine listens, docker's client leaves a socket open, which warns.
    ping = "import docker; docker.from_env(timeout=2).ping()"
    try:
        done = subprocess.run([sys.executable, "-c", ping], capture_output=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0

"""A worker whose role is no superuser's, with the privileges that docs/operations.md gives it and no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fix_kafka import MakeTopic
from tests.fix_worker import MakeWorker
from tests.fix_zookeeper import CHROOT
from tests.integration.flow import Flow
from tests.integration.roles import make_role, run
from tests.testbed.database import Database
from tests.testbed.kafka import Kafka
from tests.testbed.ports import free_port
from tests.testbed.zookeeper import ZooKeeper

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def documented(role: str) -> list[str]:
    """The statements of the chapter that give a worker's role what it needs."""
    text = OPERATIONS.read_text().partition("A role for workers that is no superuser")[2].partition("\n## ")[0]
    code = " ".join(line.strip() for line in text.splitlines() if line.startswith("    "))
    return [f"{command};" for command in re.findall(r"GRANT [^;]+", code) if f"TO {role}" in command]


@pytest.mark.usefixtures("no_local_workers")
def test_the_documented_grants_are_enough(
    flow: Flow, kafka: Kafka, zookeeper: ZooKeeper, topic: MakeTopic, database: Database, external_worker: MakeWorker
) -> None:
    worker, owner = make_role(flow, "worker", may_consume=False), make_role(flow, "owner")
    commands = documented("kafka_worker")
    assert len(commands) > 5
    for command in commands:
        words = re.findall(r"\b(?:kafka_worker|app)\b", command)
        run(
            flow,
            re.sub(r"\b(?:kafka_worker|app)\b", "{}", command),
            *({"app": owner}.get(word, worker) for word in words),
        )
    run(flow, "CREATE TABLE t (id int)")
    run(flow, "ALTER TABLE t OWNER TO {}", owner)
    run(flow, "GRANT CREATE, USAGE ON SCHEMA public TO {}", owner)
    dead = f"127.0.0.1:{free_port()}"
    zookeeper.write({f"{CHROOT}-role/brokers/ids/9": f'{{"version": 1, "host": "127.0.0.1", "port": {dead[10:]}}}'})
    flow.admin.execute("INSERT INTO pipeline_kafka.zookeepers VALUES (%s)", [f"{zookeeper.address}{CHROOT}-role"])
    flow.set_secret("client.id", "hidden")
    name = topic()
    kafka.produce(name, ["1"])
    with database.connect(user=owner) as by:
        flow.begin(name, "t", by=by)
    external_worker(dsn=database.dsn(user=worker))
    flow.read(name)
    hosts = "SELECT array_agg(host ORDER BY host) FROM pipeline_kafka.brokers"
    flow.wait(hosts, sorted([*kafka.bootstrap.split(","), dead]), "the worker has discovered a broker")
    flow.set_secret("ssl.key.pem", "no key")
    flow.set_property("security.protocol", "SSL")
    flow.wait_state(name, "t", "failing", lambda row: row["last_sqlstate"] == "08001")

"""Consumers that read over TLS and with passwords, and what they say where they are not let in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from tests.fix_cluster import Connection
from tests.fix_kafka import MakeTopic
from tests.fix_secure import by_certificate, by_password, by_pem
from tests.integration.flow import Flow
from tests.integration.secured import change, checked, configure
from tests.testbed.certificates import Authority
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.secure_broker import PASSWORD, PLAIN_USER, SCRAM_USER, SecureBroker
from tests.testbed.wait import wait_until

SCRAM = "SCRAM-SHA-512"
Reads = Callable[[str, Mapping[str, str]], str]


@pytest.fixture
def flow(admin: Connection, secure_broker: SecureBroker) -> Flow:
    """A database whose Kafka is the secure one."""
    return Flow(admin, secure_broker)


@pytest.fixture
def begun(flow: Flow, secure_broker: SecureBroker, topic: MakeTopic) -> Reads:
    """Call with a user, whom all is allowed, and properties: a consumer with a message, whose topic it returns."""

    def begin(user: str, properties: Mapping[str, str]) -> str:
        name = topic(on=secure_broker)
        secure_broker.allow(user, ResourceType.TOPIC, name, AclOperation.READ, AclOperation.DESCRIBE)
        secure_broker.allow(user, ResourceType.GROUP, name, AclOperation.READ)
        configure(flow.admin, secure_broker, properties)
        flow.admin.execute("CREATE TABLE t (id int)")
        flow.begin(name, "t", group_id=name)
        secure_broker.produce(name, ["1"])
        return name

    return begin


def fails(flow: Flow, name: str, sqlstate: str, step: str, *words: str) -> None:
    """Wait until a consumer says in consumers_status that it fails at a step, with such words."""

    def says(row: dict[str, Any]) -> bool:
        return row["last_sqlstate"] == sqlstate and f"Kafka's {step} failed: " in row["last_error"]

    row = flow.wait_state(name, "t", "failing", says)
    assert [word for word in words if word not in row["last_error"]] == []


@pytest.mark.parametrize("way", ["certificate", "pem", "plain", "scram over TLS"])
def test_it_reads_by_each_way_in(begun: Reads, flow: Flow, secure_broker: SecureBroker, way: str) -> None:
    user, properties = {
        "certificate": ("CN=client", by_certificate(secure_broker)),
        "pem": ("CN=client", by_pem(secure_broker)),
        "plain": (PLAIN_USER, by_password(secure_broker, "SASL_PLAINTEXT", "PLAIN")),
        "scram over TLS": (SCRAM_USER, by_password(secure_broker, "SASL_SSL", SCRAM)),
    }[way]
    name = begun(user, properties)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1]
    assert flow.status(name, "t")["last_error"] is None


def test_a_wrong_password_is_said_and_can_be_mended(
    begun: Reads, flow: Flow, secure_broker: SecureBroker, cluster: Cluster
) -> None:
    seen = cluster.log_size()
    wrong = {**by_password(secure_broker, "SASL_SSL", SCRAM), "sasl.password": "not the one"}
    name = begun(SCRAM_USER, wrong)
    fails(flow, name, "28000", "authentication", "invalid credentials", "sasl.password")
    said = flow.value("SELECT last_error FROM pipeline_kafka.workers_status")
    change(flow.admin, {"sasl.password": PASSWORD})
    flow.read(name)
    flow.wait_state(name, "t", "running", lambda row: row["last_error"] is None)
    assert flow.value("SELECT count(*) FROM pipeline_kafka.kafka_state") == 0
    for secret in (PASSWORD, "not the one"):
        assert secret not in f"{said} {cluster.log(seen)}"


def test_a_wrong_authority_is_said_while_it_runs(begun: Reads, flow: Flow, secure_broker: SecureBroker) -> None:
    name = begun("CN=client", by_certificate(secure_broker))
    flow.read(name)
    other = Authority(secure_broker.authority.folder, "other").certificate
    change(flow.admin, {"ssl.ca.location": str(other)})
    fails(flow, name, "08001", "TLS", "certificate verify failed", "ssl.ca.location")
    flow.wait(
        "SELECT last_error LIKE 'Kafka''s TLS failed%%' FROM pipeline_kafka.workers_status", True, "it says so too"
    )
    secure_broker.produce(name, ["2"])
    change(flow.admin, {"ssl.ca.location": str(secure_broker.authority.certificate)})
    flow.read(name)
    flow.wait_state(name, "t", "running", lambda row: row["last_error"] is None)
    assert flow.column("SELECT id FROM t") == [1, 2]


def test_properties_that_make_no_client_are_said(begun: Reads, flow: Flow, secure_broker: SecureBroker) -> None:
    name = begun("CN=client", {**by_certificate(secure_broker), "ssl.key.password": "not the one"})
    fails(flow, name, "08001", "TLS", "ssl.key.location")
    change(flow.admin, {"ssl.key.password": PASSWORD})
    flow.read(name)
    flow.wait_state(name, "t", "running")


def test_a_topic_that_may_not_be_read_is_named(begun: Reads, flow: Flow, secure_broker: SecureBroker) -> None:
    name = begun(SCRAM_USER, by_password(secure_broker, "SASL_PLAINTEXT", SCRAM))
    flow.read(name)
    secure_broker.forbid(SCRAM_USER, ResourceType.TOPIC, name)
    fails(flow, name, "42501", "authorization", name, "Topic authorization failed")
    assert [row["step"] for row in checked(flow.admin)] == ["authorization"]
    secure_broker.produce(name, ["2"])
    secure_broker.allow(SCRAM_USER, ResourceType.TOPIC, name, AclOperation.READ, AclOperation.DESCRIBE)
    flow.read(name)
    flow.wait_state(name, "t", "running")
    assert flow.column("SELECT id FROM t") == [1, 2]


def test_a_commit_that_kafka_refused_is_told_again(
    begun: Reads, flow: Flow, secure_broker: SecureBroker, database: Database
) -> None:
    name = begun(SCRAM_USER, by_password(secure_broker, "SASL_PLAINTEXT", SCRAM))
    flow.read(name)
    with database.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE t")
        secure_broker.produce(name, ["2"])
        flow.wait("SELECT count(*) FROM pg_locks WHERE NOT granted", 1, "the load waits")
        secure_broker.forbid(SCRAM_USER, ResourceType.TOPIC, name)
    flow.read(name)
    refused = flow.wait_state(name, "t", "failing")
    flow.wait_state(name, "t", "failing", lambda row: row["retry_at"] > refused["retry_at"])
    assert secure_broker.committed(name, name) != {0: 2}
    secure_broker.allow(SCRAM_USER, ResourceType.TOPIC, name, AclOperation.READ, AclOperation.DESCRIBE)
    wait_until(lambda: secure_broker.committed(name, name) == {0: 2}, "Kafka was told again")


def test_a_group_that_may_not_be_read_is_named(flow: Flow, secure_broker: SecureBroker, topic: MakeTopic) -> None:
    name = topic(on=secure_broker)
    secure_broker.allow(SCRAM_USER, ResourceType.TOPIC, name, AclOperation.READ, AclOperation.DESCRIBE)
    configure(flow.admin, secure_broker, by_password(secure_broker, "SASL_PLAINTEXT", SCRAM))
    flow.admin.execute("CREATE TABLE t (id int)")
    flow.begin(name, "t", group_id=f"{name}-group")
    fails(flow, name, "42501", "authorization", f'group "{name}-group"')
    secure_broker.produce(name, ["1"])
    secure_broker.allow(SCRAM_USER, ResourceType.GROUP, f"{name}-group", AclOperation.READ)
    flow.read(name)
    flow.wait_state(name, "t", "running", lambda row: row["last_error"] is None)
    assert flow.column("SELECT id FROM t") == [1]

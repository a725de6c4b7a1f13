"""check_brokers(): which brokers can be spoken to, and at which step the others fail."""

from __future__ import annotations

import socket
from pathlib import Path

import psycopg
import pytest

from tests.fix_cluster import Connect, Connection
from tests.fix_kafka import MakeTopic
from tests.fix_proxy import MakeProxy
from tests.fix_secure import by_certificate, by_password, by_pem
from tests.integration.flow import Flow
from tests.integration.secured import change, checked, configure
from tests.testbed.certificates import Authority
from tests.testbed.kafka import Kafka
from tests.testbed.ports import free_port
from tests.testbed.secure_broker import PASSWORD, SecureBroker


@pytest.mark.parametrize("way", ["certificate", "pem", "plain", "scram", "plain over TLS", "scram over TLS"])
def test_each_way_in_is_ok(admin: Connection, secure_broker: SecureBroker, way: str) -> None:
    properties = {
        "certificate": by_certificate(secure_broker),
        "pem": by_pem(secure_broker),
        "plain": by_password(secure_broker, "SASL_PLAINTEXT", "PLAIN"),
        "scram": by_password(secure_broker, "SASL_PLAINTEXT", "SCRAM-SHA-512"),
        "plain over TLS": by_password(secure_broker, "SASL_SSL", "PLAIN"),
        "scram over TLS": by_password(secure_broker, "SASL_SSL", "SCRAM-SHA-512"),
    }[way]
    host = configure(admin, secure_broker, properties)
    (row,) = checked(admin)
    cluster = secure_broker.admin().list_topics(timeout=10).cluster_id
    found = {"host": host, "ok": True, "step": "ok", "id": 1, "cluster": cluster, "source": "added"}
    assert row == {**found, "error": None, "hint": None}


SCRAM = "SCRAM-SHA-512"
# By what is wrong: the listener, what is changed of what is right for it, the step that fails, and words that are said.
WRONG: dict[str, tuple[str, dict[str, str | None], str, str]] = {
    "no certificate": (
        "SSL",
        {"ssl.certificate.location": None, "ssl.key.location": None},
        "TLS",
        "bad certificate",
    ),
    "another authority": ("SSL", {"ssl.ca.location": "{other}"}, "TLS", "could not be verified"),
    "wrong password of a key": ("SSL", {"ssl.key.password": "wrong"}, "TLS", "ssl.key.location"),
    "no TLS": ("SSL", {"security.protocol": "PLAINTEXT"}, "TLS", "closed by peer"),
    "TLS": ("SASL_PLAINTEXT", {"security.protocol": "SSL"}, "TLS", "PLAINTEXT broker listener"),
    "no SASL": ("SASL_PLAINTEXT", {"security.protocol": "PLAINTEXT"}, "authentication", "closed by peer"),
    "wrong password": ("SASL_SSL", {"sasl.password": "wrong"}, "authentication", "invalid credentials"),
    "unknown user": ("SASL_SSL", {"sasl.username": "nobody"}, "authentication", "invalid credentials"),
    "other mechanism": ("SASL_SSL", {"sasl.mechanism": "SCRAM-SHA-256"}, "authentication", "Unsupported SASL"),
    "no user": ("SASL_SSL", {"sasl.username": None}, "properties", "sasl.username"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_with_its_step(
    admin: Connection, secure_broker: SecureBroker, folder: Path, what: str
) -> None:
    listener, changes, step, words = WRONG[what]
    right = by_certificate(secure_broker) if listener == "SSL" else by_password(secure_broker, listener, SCRAM)
    other = Authority(folder, "other").certificate
    host = configure(admin, secure_broker, right)
    change(admin, {name: value and value.format(other=other) for name, value in changes.items()})
    (row,) = checked(admin)
    assert (row["host"], row["ok"], row["step"], row["id"]) == (host, False, step, None)
    assert words in row["error"]
    assert row["hint"]
    assert PASSWORD not in str(row)


def test_each_broker_is_asked_by_itself(linked: Connection, kafka: Kafka) -> None:
    dead, unknown = f"127.0.0.1:{free_port()}", "no-such-host.invalid:9092"
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"127.0.0.1:{server.getsockname()[1]}"
        for host in (dead, unknown, silent):
            linked.execute("SELECT pipeline_kafka.add_broker(%s)", [host])
        rows = {row["host"]: row for row in checked(linked, 3000)}
    assert {host: row["step"] for host, row in rows.items()} == {
        **dict.fromkeys(kafka.bootstrap.split(","), "ok"),
        dead: "connection",
        silent: "connection",
        unknown: "name resolution",
    }
    assert "Connection refused" in rows[dead]["error"]
    assert "did not answer within" in rows[silent]["error"]


def test_a_broker_far_away_is_waited_for(admin: Connection, secure_broker: SecureBroker, proxy: MakeProxy) -> None:
    proxy(secure_broker.proxy_target, secure_broker.proxy_address).delay(0.4)
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [secure_broker.proxied_bootstrap])
    assert [row["step"] for row in checked(admin)] == ["ok"]


def test_what_other_brokers_name_is_asked_too(linked: Connection, kafka: Kafka) -> None:
    linked.execute("DELETE FROM pipeline_kafka.brokers")
    by_name = kafka.bootstrap.replace("127.0.0.1", "localhost")
    linked.execute("SELECT pipeline_kafka.add_broker(%s)", [by_name])
    rows = {row["host"]: row for row in checked(linked)}
    assert (rows[by_name]["ok"], rows[by_name]["id"], rows[by_name]["source"]) == (True, None, "added")
    assert (rows[kafka.bootstrap]["ok"], rows[kafka.bootstrap]["source"]) == (True, "kafka")


def test_brokers_of_two_clusters_are_told(linked: Connection, kafka: Kafka, secure_broker: SecureBroker) -> None:
    linked.execute("SELECT pipeline_kafka.add_broker(%s)", [secure_broker.bootstrap])
    rows = checked(linked)
    assert [row["ok"] for row in rows] == [True, True]
    assert len({row["cluster"] for row in rows}) == 2
    assert [row["hint"] is None or "another cluster" in row["hint"] for row in rows] == [True, True]
    assert any(row["hint"] for row in rows)


def test_what_is_not_allowed_to_be_read_is_named(flow: Flow, secure_broker: SecureBroker, topic: MakeTopic) -> None:
    name = topic(on=secure_broker)
    flow.admin.execute("CREATE TABLE t (id int)")
    configure(flow.admin, secure_broker, by_password(secure_broker, "SASL_SSL", SCRAM))
    flow.begin(name, "t", group_id=f"{name}-group")
    (row,) = checked(flow.admin)
    assert (row["ok"], row["step"], row["id"]) == (False, "authorization", 1)
    assert f'topic "{name}", group "{name}-group"' in row["error"]
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f'topic "{name}": Kafka.s authorization failed'):
        flow.rows("SELECT * FROM pipeline_kafka.topic_watermarks(%s)", name)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f'group "{name}-group": Kafka.s authorization'):
        flow.rows("SELECT * FROM pipeline_kafka.committed_offsets(%s)", f"{name}-group")
    flow.end(name, "t")
    (row,) = checked(flow.admin)
    assert row["ok"]


def test_no_broker_is_configured(admin: Connection) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="no broker is configured"):
        checked(admin)


def test_who_may_check_sees_no_secret(linked: Connection, connect: Connect) -> None:
    linked.execute("DO $$ BEGIN CREATE ROLE checker LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    checker = connect(user="checker")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        checked(checker)
    linked.execute("GRANT EXECUTE ON FUNCTION pipeline_kafka.check_brokers TO checker")
    assert [row["step"] for row in checked(checker)] == ["ok"]
    for relation in ("secrets", "properties", "properties_shown"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            checker.execute(f"SELECT * FROM pipeline_kafka.{relation}".encode())

"""Asking Kafka from a session: within a time, with a cancel answered, and with nothing of Kafka's inside the server."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

from tests.fix_cluster import Connect, Connection
from tests.fix_kafka import MakeTopic
from tests.testbed.kafka import Kafka
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

ASK = "SELECT * FROM pipeline_kafka.topics(timeout => 60000)"


def children(pid: int) -> list[int]:
    """The processes that a process has begun."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def silent() -> Generator[str]:
    """An address that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def waiting(admin: Connection, silent: str) -> Connection:
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [silent])
    return admin


def child_of(connection: Connection) -> int:
    """The process that a session waits for."""
    pid = connection.info.backend_pid
    (child,) = wait_until(lambda: children(pid), "the session has a process")
    return child


def in_thread(connection: Connection) -> tuple[threading.Thread, list[psycopg.Error]]:
    """Ask in a thread, and keep the error."""
    errors: list[psycopg.Error] = []

    def ask() -> None:
        try:
            connection.execute(ASK)
        except psycopg.Error as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, errors


def test_topics_partitions_and_watermarks(linked: Connection, kafka: Kafka, topic: MakeTopic) -> None:
    name = topic(partitions=3)
    kafka.produce(name, ["1", "2"], partition=1)
    rows = linked.execute("SELECT topic, partitions, replicas FROM pipeline_kafka.topics()").fetchall()
    assert (name, 3, 1) in rows
    query = "SELECT partition, leader IS NOT NULL, array_length(replicas, 1), replicas = in_sync FROM "
    rows = linked.execute(query + "pipeline_kafka.topic_partitions(%s)", [name]).fetchall()
    assert rows == [(number, True, 1, True) for number in range(3)]
    rows = linked.execute("SELECT * FROM pipeline_kafka.topic_watermarks(%s)", [name]).fetchall()
    assert rows == [(0, 0, 0), (1, 0, 2), (2, 0, 0)]
    rows = linked.execute("SELECT * FROM pipeline_kafka.topic_watermarks(%s, 1)", [name]).fetchall()
    assert rows == [(1, 0, 2)]


def test_what_is_not_there_is_named(linked: Connection, topic: MakeTopic) -> None:
    name = topic()
    with pytest.raises(psycopg.errors.UndefinedObject) as caught:
        linked.execute("SELECT * FROM pipeline_kafka.topic_watermarks('no-such-topic')")
    said = caught.value.diag
    assert (said.message_primary or "").startswith('topic "no-such-topic": ')
    assert (said.message_detail, said.message_hint) == (None, "topics() shows those there are.")
    with pytest.raises(psycopg.errors.UndefinedObject, match=f'^topic "{name}" has no partition 7') as refused:
        linked.execute("SELECT * FROM pipeline_kafka.topic_watermarks(%s, 7)", [name])
    assert (refused.value.diag.message_detail, refused.value.diag.message_hint) == ("It has 1.", None)
    assert "no-such-topic" not in [row[0] for row in linked.execute("SELECT topic FROM pipeline_kafka.topics()")]


@pytest.mark.parametrize("name", ["a b", "line\nline", "", "x" * 250, "é"])
def test_what_is_no_name_of_a_topic_is_said_at_once(linked: Connection, name: str) -> None:
    for query in ("topic_partitions(%s)", "topic_watermarks(%s)", "peek(%s)", "offsets_for_times(%s, now())"):
        with pytest.raises(psycopg.errors.InvalidName, match="is no name of a topic") as caught:
            linked.execute(f"SELECT * FROM pipeline_kafka.{query}".encode(), [name])
        assert len(caught.value.diag.message_primary or "") < 300


def test_no_broker_is_configured(admin: Connection) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="no broker is configured"):
        admin.execute("SELECT * FROM pipeline_kafka.topics()")


def test_a_dead_broker_is_said_within_the_timeout(admin: Connection) -> None:
    admin.execute("SELECT pipeline_kafka.add_broker(%s)", [f"127.0.0.1:{free_port()}"])
    with pytest.raises(psycopg.errors.ConnectionFailure, match="Connection refused"):
        admin.execute("SELECT * FROM pipeline_kafka.topics(timeout => 1000)")


def test_a_name_that_is_not_known_is_said(admin: Connection) -> None:
    admin.execute("SELECT pipeline_kafka.add_broker('no-such-host.invalid:9092')")
    with pytest.raises(psycopg.errors.SqlclientUnableToEstablishSqlconnection, match="name resolution failed"):
        admin.execute("SELECT * FROM pipeline_kafka.topics(timeout => 3000)")


def test_a_broker_that_says_nothing_is_timed_out(waiting: Connection) -> None:
    with pytest.raises(psycopg.errors.ConnectionFailure):
        waiting.execute("SELECT * FROM pipeline_kafka.topics(timeout => 500)")
    assert children(waiting.info.backend_pid) == []


@pytest.mark.parametrize("timeout", ["0", "-1", "3600001", "NULL"])
def test_a_timeout_is_checked(admin: Connection, timeout: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="timeout is "):
        admin.execute(f"SELECT * FROM pipeline_kafka.topics(timeout => {timeout})".encode())


def test_a_cancel_ends_it_and_its_process(waiting: Connection) -> None:
    thread, errors = in_thread(waiting)
    child = child_of(waiting)
    waiting.cancel_safe()
    thread.join()
    assert [type(error) for error in errors] == [psycopg.errors.QueryCanceled]
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the process is gone")
    assert waiting.execute("SELECT 1").fetchone() == (1,)


def test_a_statement_timeout_ends_it(waiting: Connection) -> None:
    waiting.execute("SET statement_timeout = '300ms'")
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        waiting.execute(ASK)


def test_a_crash_of_its_process_is_an_error_and_no_more(waiting: Connection) -> None:
    thread, errors = in_thread(waiting)
    os.kill(child_of(waiting), signal.SIGSEGV)
    thread.join()
    assert ["was ended by signal 11" in str(error) for error in errors] == [True]
    assert waiting.execute("SELECT 1").fetchone() == (1,)


def test_an_abort_of_librdkafka_has_it_ask_again(waiting: Connection) -> None:
    thread, errors = in_thread(waiting)
    first = child_of(waiting)
    os.kill(first, signal.SIGABRT)
    wait_until(lambda: set(children(waiting.info.backend_pid)) - {first}, "another process asks")
    waiting.cancel_safe()
    thread.join()
    assert [type(error) for error in errors] == [psycopg.errors.QueryCanceled]


def test_its_process_ends_with_the_session(waiting: Connection, connect: Connect) -> None:
    thread, errors = in_thread(waiting)
    child = child_of(waiting)
    connect().execute("SELECT pg_terminate_backend(%s)", [waiting.info.backend_pid])
    thread.join()
    assert len(errors) == 1
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the process is gone")


def test_who_may_ask_sees_no_secret(linked: Connection, connect: Connect, kafka: Kafka, topic: MakeTopic) -> None:
    name = topic()
    linked.execute("DO $$ BEGIN CREATE ROLE asker LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    asker = connect(user="asker")
    query = "SELECT * FROM pipeline_kafka.topic_watermarks(%s)"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        asker.execute(query, [name])
    linked.execute("GRANT USAGE ON SCHEMA pipeline_kafka TO asker")
    linked.execute("GRANT EXECUTE ON FUNCTION pipeline_kafka.topic_watermarks TO asker")
    assert asker.execute(query, [name]).fetchall() == [(0, 0, 0)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        asker.execute("SELECT pipeline_kafka.ask('topics', '{}', 1000)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        asker.execute("SELECT * FROM pipeline_kafka.properties")

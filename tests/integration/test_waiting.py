"""wait_for() and consume_until_end(): what was in the topic is in the relation, or it is said why not."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fix_cluster import Connect, Connection
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.integration.test_gaps import in_a_transaction
from tests.testbed.wait import wait_until

ALL = "SELECT pipeline_kafka.wait_for(%s, 't')"
ONE = "SELECT pipeline_kafka.wait_for(%s, %s, %s, 't')"
NOW = "SELECT pipeline_kafka.wait_for(%s, 't', 2000)"


@pytest.fixture
def t(flow: Flow) -> Flow:
    flow.admin.execute("CREATE TABLE t (id int)")
    return flow


class Waiter:
    """A session that waits in a thread; ``error`` is None where it waited well."""

    def __init__(self, connection: Connection, query: str, *values: Any) -> None:
        self.error: psycopg.Error | None = None
        self._connection = connection
        self._thread = threading.Thread(target=self._run, args=(query, values))
        self._thread.start()

    def _run(self, query: str, values: tuple[Any, ...]) -> None:
        try:
            self._connection.execute(query.encode(), values)
        except psycopg.Error as error:
            self.error = error

    def wait_asleep(self, admin: Connection) -> None:
        """Wait until it waits for the consumer."""
        query = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
        pid = self._connection.info.backend_pid
        wait_until(lambda: admin.execute(query, [pid]).fetchone(), "it waits", accept=("PgSleep",).__eq__)

    def alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> psycopg.Error | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def waiter(connect: Connect) -> Callable[..., Waiter]:
    return lambda query, *values: Waiter(connect(), query, *values)


def test_what_was_there_is_in(t: Flow, topic: MakeTopic) -> None:
    name = topic(2)
    for partition in range(2):
        t.kafka.produce(name, [str(n) for n in range(1000)], partition=partition)
    t.begin(name, "t")
    assert t.value(ALL.replace("'t'", "'t', 60000"), name) == "success"
    assert t.value("SELECT count(*) FROM t") == 2000
    in_a_transaction(t, name, ["666"], commit=False)
    assert t.value(ALL, name) == "success"
    assert t.value("SELECT count(*) FROM t") == 2000
    assert t.value(ALL, topic_without_messages(t, topic)) == "success"


def topic_without_messages(t: Flow, topic: MakeTopic) -> str:
    name = topic(suffix="-empty")
    t.begin(name, "t")
    return name


def test_what_is_set_aside_meanwhile_is_told(t: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    notices: list[str | None] = []
    session = connect()
    session.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    t.begin(name, "t")
    t.admin.execute("BEGIN; LOCK TABLE t")
    t.kafka.produce(name, ["1", "bad", "worse"])
    waiting = Waiter(session, ALL.replace("'t'", "'t', 60000"), name)
    waiting.wait_asleep(connect())
    t.admin.execute("COMMIT")
    assert waiting.end() is None
    assert notices == ["2 messages were set aside or skipped meanwhile"]
    assert t.value(ONE, name, 0, 0) == "success"
    with pytest.raises(
        psycopg.errors.NoDataFound, match=rf"offset 1 of {name}\[0\] was set aside, with SQLSTATE 22P02"
    ) as error:
        t.value(ONE, name, 0, 1)
    assert (error.value.diag.message_hint or "").startswith("It is dead letter 1")


def test_it_waits_for_what_others_commit(t: Flow, topic: MakeTopic, waiter: Callable[..., Waiter]) -> None:
    name = topic()
    t.begin(name, "t")
    t.wait_state(name, "t", "running")
    one = waiter(ONE, name, 0, 1)
    one.wait_asleep(t.admin)
    t.kafka.produce(name, ["1"])
    t.read(name)
    assert one.alive()
    t.kafka.produce(name, ["2"])
    assert one.end() is None
    t.admin.execute("BEGIN; LOCK TABLE t")
    t.kafka.produce(name, ["3"])
    both = waiter(ALL, name)
    watched = waiter("SELECT 1")
    assert watched.end() is None
    t.admin.execute("COMMIT")
    assert both.end() is None
    assert t.column("SELECT id FROM t") == [1, 2, 3]


def test_a_cancel_ends_it(t: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    t.begin(name, "t")
    t.wait_state(name, "t", "running")
    session = connect()
    waiting = Waiter(session, ONE, name, 0, 99)
    waiting.wait_asleep(t.admin)
    session.cancel_safe()
    error = waiting.end()
    assert isinstance(error, psycopg.errors.QueryCanceled)
    assert "user request" in str(error)


def test_why_it_waits_in_vain(t: Flow, topic: MakeTopic, waiter: Callable[..., Waiter]) -> None:
    name = topic()
    with pytest.raises(psycopg.errors.UndefinedObject, match=f"there is no consumer of {name} into .*t"):
        t.value(ALL, name)
    t.begin(name, "t", on_error="stop")
    t.wait_state(name, "t", "running")
    with pytest.raises(psycopg.errors.QueryCanceled, match=rf"in vain .* to come to offset 6 of {name}\[0\]") as late:
        t.value("SELECT pipeline_kafka.wait_for(%s, 0, 5, 't', 1500)", name)
    assert late.value.diag.message_detail == "It is running, at offset 0."
    with pytest.raises(psycopg.errors.UndefinedObject, match="has no partition 3"):
        t.value(ONE, name, 3, 0)
    waiting = waiter(ONE, name, 0, 9)
    waiting.wait_asleep(t.admin)
    t.kafka.produce(name, ["1", "bad"])
    stopped = waiting.end()
    assert isinstance(stopped, psycopg.errors.ObjectNotInPrerequisiteState)
    assert f"consumer {name} -> public.t has stopped: 22P02" in str(stopped)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="has stopped: 22P02") as why:
        t.value(ALL, name)
    assert why.value.diag.message_hint == "Do what it says, or mend what it names and call consume_begin()."
    t.admin.execute("DELETE FROM pipeline_kafka.consumer_state")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="has ended"):
        t.value(ALL, name)


def test_where_it_could_wait_for_ever(t: Flow, topic: MakeTopic, connect: Connect, no_local_workers: None) -> None:
    name = topic()
    t.kafka.produce(name, ["1"])
    t.begin(name, "t")
    session = connect(autocommit=False)
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        with pytest.raises(psycopg.errors.InvalidTransactionState, match="would never see"):
            session.execute(ALL, [name])
        session.rollback()
    session.execute("SELECT pipeline_kafka.consume_begin(%s, 't')", [name])
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="by this very transaction"):
        session.execute(ALL, [name])
    session.rollback()
    with pytest.raises(psycopg.errors.QueryCanceled) as late:
        session.execute(NOW, [name])
    assert late.value.diag.message_detail == "It is no worker, at offset none yet."


def test_a_topic_of_a_pattern_and_the_whole_of_it(t: Flow, topic: MakeTopic) -> None:
    first, second, out = topic(suffix=".a"), topic(suffix=".b"), topic(suffix=".c")
    pattern = f"^{first.rpartition('-')[0]}"
    for name in (first, second, out):
        t.kafka.produce(name, ["1"])
    t.begin(pattern, "t", exclude=r"\.c$")
    assert t.value(ALL.replace("'t'", "'t', 60000"), first) == "success"
    assert t.value(ALL, pattern) == "success"
    assert t.column("SELECT id FROM t") == [1, 1]
    with pytest.raises(psycopg.errors.UndefinedObject):
        t.value(ALL, out)


def test_until_the_end_and_no_further(t: Flow, topic: MakeTopic) -> None:
    name = topic(2)
    t.kafka.produce(name, ['{"id": 1}', '{"id": 2}'])
    call = "CALL pipeline_kafka.consume_until_end(%s, 't', options => '{\"format\": \"json\"}')"
    t.admin.execute(call, [name])
    assert t.column("SELECT id FROM t") == [1, 2]
    assert t.status(name, "t")["state"] == "ended"
    t.kafka.produce(name, ['{"id": 3}'])
    t.admin.execute("CALL pipeline_kafka.consume_until_end(%s, 't')", [name])
    assert t.column("SELECT id FROM t") == [1, 2, 3]


def test_until_the_end_is_ended_whatever_happens(t: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    t.kafka.produce(name, ["1", "bad", "3"])
    call = "CALL pipeline_kafka.consume_until_end(%s, 't', {})"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="has stopped: 22P02"):
        t.admin.execute(call.format("""options => '{"on_error": "stop"}'""").encode(), [name])
    assert t.status(name, "t")["state"] == "stopped"
    t.admin.execute("BEGIN; LOCK TABLE t")
    session = connect()
    waiting = Waiter(session, call.format("""options => '{"on_error": "skip"}'"""), name)
    waiting.wait_asleep(connect())
    session.cancel_safe()
    assert isinstance(waiting.end(), psycopg.errors.QueryCanceled)
    t.admin.execute("COMMIT")
    assert t.status(name, "t")["state"] == "ended"
    t.admin.execute(call.format("""options => '{"on_error": "skip"}'""").encode(), [name])
    assert t.column("SELECT id FROM t") == [1, 3]


def test_until_the_end_is_checked(t: Flow, topic: MakeTopic, connect: Connect, no_local_workers: None) -> None:
    name = topic()
    call = "CALL pipeline_kafka.consume_until_end(%s, 't', {})"
    for options, said in (('{"nonsense": 1}', 'options has "nonsense"'), ("[]", "no JSON object")):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=said):
            t.admin.execute(call.format(f"options => '{options}'").encode(), [name])
    session = connect(autocommit=False)
    with pytest.raises(psycopg.errors.InvalidTransactionTermination):
        session.execute("CALL pipeline_kafka.consume_until_end(%s, 't')", [name])
    session.rollback()
    assert t.rows("SELECT FROM pipeline_kafka.consumers") == []
    t.begin(name, "t")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="runs already"):
        t.admin.execute("CALL pipeline_kafka.consume_until_end(%s, 't')", [name])
    assert t.value("SELECT enabled FROM pipeline_kafka.consumers")


def test_the_grants_that_are_documented_are_enough(t: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    t.kafka.produce(name, ["1", "2"])
    documents = Path(__file__).resolve().parents[2] / "docs"
    text = "\n".join((documents / page).read_text() for page in ("operations.md", "positions.md"))
    grants = re.findall(r"^ +(GRANT [^;]*?\sTO app;)", text, re.MULTILINE)
    assert len(grants) >= 5
    t.admin.execute("DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    for grant in [*grants, "GRANT INSERT, SELECT ON t TO app;"]:
        t.admin.execute(grant.encode())
    app = connect(user="app")
    app.execute("CALL pipeline_kafka.consume_until_end(%s, 'public.t')", [name])
    moved = app.execute("SELECT * FROM pipeline_kafka.seek(%s, 'public.t', 1)", [name]).fetchall()
    assert moved == [(name, 0, 2, 1)]
    app.execute("SELECT pipeline_kafka.consume_begin(%s, 'public.t')", [name])
    assert app.execute("SELECT pipeline_kafka.wait_for(%s, 0, 1, 'public.t')", [name]).fetchone() == ("success",)
    assert app.execute("SELECT id FROM public.t ORDER BY id").fetchall() == [(1,), (2,), (2,)]

"""Who may begin a consumer, whose rights its rows are written with, and that nobody gets more."""

from __future__ import annotations

import psycopg
import pytest

from tests.fix_cluster import Connect
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.integration.roles import RECORDER, make_role, run


def test_rows_are_written_as_the_role_that_began(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    role = make_role(flow, 'Odd "Role"')
    flow.admin.execute(RECORDER)
    run(flow, "GRANT INSERT ON t TO {}", role)
    flow.kafka.produce(name, ["1\tx", "bad\tx", "2\tx"])
    flow.begin(name, "t", by=connect(user=role))
    flow.read(name)
    assert flow.rows("SELECT id, by FROM t ORDER BY id") == [(1, role), (2, role)]
    assert flow.aside(name) == [(0, 1, "22P02")]
    assert flow.value("SELECT r.rolname FROM pipeline_kafka.consumers c JOIN pg_roles r ON r.oid = c.owner") == role


def test_without_the_right_to_insert_nothing_begins(flow: Flow, connect: Connect) -> None:
    role = make_role(flow)
    flow.admin.execute("CREATE TABLE t (id int)")
    with pytest.raises(
        psycopg.errors.InsufficientPrivilege, match=f'role "{role}" may not insert into public.t'
    ) as refused:
        flow.begin("any", "t", by=connect(user=role))
    assert refused.value.diag.message_hint == f'GRANT INSERT ON public.t TO "{role}";'
    assert flow.rows("SELECT * FROM pipeline_kafka.consumers") == []


CALLS = [
    "SELECT pipeline_kafka.consume_begin('any', 't')",
    "SELECT pipeline_kafka.consume_begin()",
    "SELECT pipeline_kafka.consume_end('any', 't')",
    "SELECT pipeline_kafka.consume_end()",
]


@pytest.mark.parametrize("call", CALLS)
def test_without_the_right_to_execute_nothing_can_be_called(flow: Flow, connect: Connect, call: str) -> None:
    role = make_role(flow, may_consume=False)
    flow.admin.execute("CREATE TABLE t (id int)")
    run(flow, "GRANT INSERT ON t TO {}", role)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function"):
        connect(user=role).execute(call)


def test_without_the_right_to_execute_nothing_can_be_requested(flow: Flow, connect: Connect) -> None:
    role = make_role(flow, may_consume=False)
    flow.admin.execute("CREATE TABLE t (id int)")
    run(flow, "GRANT INSERT ON t TO {}", role)
    as_role = connect(user=role)
    for function in flow.column(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pipeline_kafka'::regnamespace"
    ):
        with pytest.raises(psycopg.Error) as refused:
            as_role.execute("INSERT INTO pipeline_kafka.requests (function) VALUES (%s)", [function])
        if "consume_" in function:
            assert f'role "{role}" may not execute {function}' in str(refused.value)
            assert (
                refused.value.diag.message_hint == f'A superuser may: GRANT EXECUTE ON FUNCTION {function} TO "{role}";'
            )
    assert flow.rows("SELECT * FROM pipeline_kafka.consumers") == []


def test_a_caller_cannot_give_another_name(flow: Flow, connect: Connect) -> None:
    role = make_role(flow)
    as_role = connect(user=role)
    for columns, values in {"caller, function": "'postgres', %s", "function, caller": "%s, DEFAULT"}.items():
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_role.execute(
                f"INSERT INTO pipeline_kafka.requests ({columns}) VALUES ({values})", ["pipeline_kafka.consume_end()"]
            )
    for table in ("requests", "consumers", "offsets", "dead_letters", "properties", "brokers"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_role.execute(f"SELECT * FROM pipeline_kafka.{table}")


def test_what_a_request_says_of_the_owner_is_not_heard(flow: Flow, connect: Connect) -> None:
    role = make_role(flow)
    flow.admin.execute("CREATE TABLE t (id int)")
    run(flow, "GRANT INSERT ON t TO {}", role)
    with connect(user=role) as as_role:
        flow.begin("any", "t", by=as_role)
        as_role.execute(
            """INSERT INTO pipeline_kafka.requests (function, arguments)
               SELECT p.oid, jsonb_build_object(
                   'owner', 'postgres', 'id', 77, 'topic', 'other', 'relation', 't'::regclass::oid, 'format', 'text',
                   'delimiter', ',', 'batchsize', 1, 'maxbytes', 1, 'parallelism', 1, 'timeout', 0, 'started', true,
                   'on_error', 'skip', 'on_offset_lost', 'stop')
               FROM pg_proc p WHERE proname = 'consume_begin' AND pronargs > 0"""
        )
    owners = "SELECT DISTINCT r.rolname FROM pipeline_kafka.consumers c JOIN pg_roles r ON r.oid = c.owner"
    assert flow.rows(owners) == [(role,)]
    assert flow.rows("SELECT id, started FROM pipeline_kafka.consumers WHERE topic = 'other'") == [(2, False)]


def test_another_roles_consumer_is_out_of_reach(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    owner, other = make_role(flow), make_role(flow)
    flow.admin.execute("CREATE TABLE t (id int)")
    run(flow, "GRANT INSERT ON t TO {}, {}", owner, other)
    flow.begin(name, "t", by=connect(user=owner))
    as_other = connect(user=other)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="belongs to"):
        flow.begin(name, "t", by=as_other, on_error="skip")
    with pytest.raises(psycopg.errors.UndefinedObject, match="no consumer"):
        as_other.execute("SELECT pipeline_kafka.consume_end(%s, 't')", [name])
    as_other.execute("SELECT pipeline_kafka.consume_end()")
    flow.kafka.produce(name, ["1"])
    flow.read(name)
    connect(user=owner).execute("SELECT pipeline_kafka.consume_end()")
    as_other.execute("SELECT pipeline_kafka.consume_begin()")
    assert flow.status(name, "t")["state"] == "ended"


def test_a_superuser_who_changes_a_consumer_does_not_lend_it_powers(
    flow: Flow, topic: MakeTopic, connect: Connect
) -> None:
    name = topic()
    role = make_role(flow)
    flow.admin.execute(RECORDER)
    run(flow, "GRANT INSERT ON t TO {}", role)
    flow.begin(name, "t", by=connect(user=role))
    flow.begin(name, "t", batchsize=7)
    flow.kafka.produce(name, ["1\tx"])
    flow.read(name)
    assert flow.rows("SELECT id, by FROM t") == [(1, role)]
    assert flow.value("SELECT batchsize FROM pipeline_kafka.consumers") == 7


def test_a_wrapper_acts_for_the_role_that_made_it(flow: Flow, connect: Connect) -> None:
    victim, evil = make_role(flow, "victim"), make_role(flow, "evil")
    run(flow, "CREATE SCHEMA trap AUTHORIZATION {}", evil)
    flow.admin.execute("GRANT USAGE ON SCHEMA trap TO PUBLIC; CREATE TABLE t (id int)")
    run(flow, "GRANT INSERT ON t TO {}", victim)
    connect(user=evil).execute(
        """CREATE FUNCTION trap.innocent() RETURNS text LANGUAGE sql SECURITY DEFINER
           AS $$ SELECT pipeline_kafka.consume_begin('any', 't') $$"""
    )
    for caller in (victim, "postgres"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f'role "{evil}" may not insert'):
            connect(user=caller).execute("SELECT trap.innocent()")

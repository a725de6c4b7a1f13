"""What happens in the owner's role while rows are written: triggers, constraints, search_path, lost privileges."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from tests.fix_cluster import Connect
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow
from tests.integration.roles import RECORDER, make_role, run


def test_row_security_applies(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    role = make_role(flow)
    flow.admin.execute(
        "CREATE TABLE t (id int); ALTER TABLE t ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY small ON t FOR INSERT WITH CHECK (id < 10)"
    )
    run(flow, "GRANT INSERT ON t TO {}", role)
    flow.kafka.produce(name, ['{"id":1}', '{"id":99}', '{"id":2}'])
    flow.begin(name, "t", by=connect(user=role), format="json")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]
    assert flow.aside(name) == [(0, 1, "42501")]


def test_row_security_cannot_be_had_with_copy(flow: Flow, connect: Connect) -> None:
    role = make_role(flow)
    flow.admin.execute("CREATE TABLE t (id int); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    run(flow, "GRANT INSERT ON t TO {}", role)
    with pytest.raises(
        psycopg.errors.FeatureNotSupported, match=f'row security on public.t holds for "{role}"'
    ) as refused:
        flow.begin("any", "t", by=connect(user=role))
    assert "json" in (refused.value.diag.message_hint or "")


@pytest.mark.parametrize("format", ["text", "json"])
def test_deferred_constraints_are_checked_for_each_row(
    flow: Flow, topic: MakeTopic, connect: Connect, format: str
) -> None:
    name = topic()
    role = make_role(flow)
    flow.admin.execute(
        """CREATE TABLE parents (id int PRIMARY KEY); INSERT INTO parents VALUES (1), (2);
           CREATE TABLE t (id int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)"""
    )
    run(flow, "GRANT INSERT ON t TO {}", role)
    form = "{}" if format == "text" else '{{"id":{}}}'
    flow.kafka.produce(name, [form.format(n) for n in (1, 99, 2)])
    flow.begin(name, "t", by=connect(user=role), format=format)
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1, 2]
    assert flow.aside(name) == [(0, 1, "23503")]


def test_triggers_see_the_owners_search_path(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    # One role has the default search_path, which begins with its own name, the other a path of its own.
    schemas = {make_role(flow, 'Odd "Role"'): None, make_role(flow): "Elsewhere"}
    for role, schema in schemas.items():
        run(flow, "CREATE SCHEMA {} AUTHORIZATION {}", schema or role, role)
        run(flow, "CREATE TABLE {}.log (id int)", schema or role)
        run(flow, "GRANT INSERT ON {}.log TO {}", schema or role, role)
        if schema:
            run(flow, "ALTER ROLE {} SET search_path = {}, public", role, schema)
    flow.admin.execute(
        """CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO log VALUES (NEW.id); RETURN NEW;
           END $$;
           CREATE TABLE t (id int); CREATE TRIGGER note BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
           CREATE TABLE u (id int); CREATE TRIGGER note BEFORE INSERT ON u FOR EACH ROW EXECUTE FUNCTION note()"""
    )
    for table, role in zip("tu", schemas, strict=True):
        run(flow, "GRANT INSERT ON {} TO {}", table, role)
        flow.begin(name, table, by=connect(user=role))
    flow.kafka.produce(name, ["1"])
    flow.read(name)
    assert flow.aside(name) == []
    for role, schema in schemas.items():
        log = sql.SQL("SELECT id FROM {}.log").format(sql.Identifier(schema or role))
        assert flow.admin.execute(log).fetchall() == [(1,)]


def test_a_trigger_does_not_get_out_of_the_owners_role(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    role = make_role(flow)
    flow.admin.execute(
        """CREATE TABLE t (id int, by text, failed text[]);
           CREATE FUNCTION climb() RETURNS trigger LANGUAGE plpgsql AS $$
           DECLARE
               way text;
           BEGIN
               FOREACH way IN ARRAY ARRAY['RESET ROLE', 'SET ROLE postgres', 'RESET SESSION AUTHORIZATION',
                       'SET SESSION AUTHORIZATION postgres', 'SELECT set_config(''role'', ''none'', false)',
                       'SET CONSTRAINTS ALL DEFERRED', 'SELECT pipeline_kafka.begin_as(10, ''0123456789abcdef'')'] LOOP
                   BEGIN
                       EXECUTE way;
                   EXCEPTION WHEN OTHERS THEN
                       NEW.failed := NEW.failed || way;
                   END;
               END LOOP;
               NEW.by := current_user;
               RETURN NEW;
           END $$;
           CREATE TRIGGER climb BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION climb()"""
    )
    run(flow, "GRANT INSERT ON t TO {}", role)
    flow.kafka.produce(name, ['{"id":1}', '{"id":2}'])
    flow.begin(name, "t", by=connect(user=role), format="json")
    flow.read(name)
    assert flow.rows("SELECT id, by FROM t ORDER BY id") == [(1, role), (2, role)]
    assert flow.status(name, "t")["last_error"] is None


def test_a_trigger_that_guesses_at_the_token_gets_nothing_in(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    role = make_role(flow)
    flow.admin.execute(
        """CREATE TABLE t (id int);
           CREATE FUNCTION guess() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               BEGIN
                   PERFORM pipeline_kafka.end_as(repeat('0', 32));
               EXCEPTION WHEN OTHERS THEN
                   NULL;
               END;
               RETURN NEW;
           END $$;
           CREATE TRIGGER guess BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION guess()"""
    )
    run(flow, "GRANT INSERT ON t TO {}", role)
    flow.kafka.produce(name, ["1"])
    flow.begin(name, "t", by=connect(user=role))
    status = flow.wait_state(name, "t", "failing")
    assert "end_as()" in status["last_error"]
    assert flow.column("SELECT id FROM t") == []
    flow.admin.execute("DROP TRIGGER guess ON t")
    flow.read(name)
    assert flow.column("SELECT id FROM t") == [1]


def test_a_trigger_is_not_shown_the_token(flow: Flow, topic: MakeTopic, connect: Connect) -> None:
    name = topic()
    role = make_role(flow)
    flow.admin.execute(
        """CREATE TABLE t (id int, query text);
           CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               NEW.query := current_query() || (SELECT string_agg(query, ';') FROM pg_stat_activity)
                            || (SELECT string_agg(name || setting, ';') FROM pg_settings);
               RETURN NEW;
           END $$;
           CREATE TRIGGER look BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION look()"""
    )
    run(flow, "GRANT INSERT ON t TO {}", role)
    flow.kafka.produce(name, ['{"id":1}'])
    flow.begin(name, "t", by=connect(user=role), format="json")
    flow.read(name)
    assert flow.value("SELECT query ~ '[0-9a-f]{32}' FROM t") is False


def test_a_lost_privilege_pauses_the_consumer_until_it_is_given_back(
    flow: Flow, topic: MakeTopic, connect: Connect
) -> None:
    name = topic()
    role = make_role(flow)
    flow.admin.execute(RECORDER + "CREATE TABLE other (id int, by text)")
    run(flow, "GRANT INSERT ON t TO {}", role)
    flow.begin(name, "t", by=connect(user=role))
    flow.begin(name, "other")
    flow.kafka.produce(name, ["1\tx"])
    flow.read(name)
    run(flow, "REVOKE INSERT ON t FROM {}", role)
    flow.kafka.produce(name, [f"{n}\tx" for n in range(2, 10)])
    status = flow.wait_state(name, "t", "failing")
    assert (status["last_sqlstate"], status["last_error"]) == ("42501", "permission denied for table t")
    flow.read(name, "other")
    run(flow, "GRANT INSERT ON t TO {}", role)
    flow.read(name)
    flow.wait_state(name, "t", "running")
    assert flow.rows("SELECT id, by FROM t ORDER BY id") == [(n, role) for n in range(1, 10)]
    assert flow.aside(name) == []


def test_the_right_to_insert_into_some_columns_is_enough_when_only_they_are_sent(
    flow: Flow, topic: MakeTopic, connect: Connect
) -> None:
    name = topic()
    role = make_role(flow)
    flow.admin.execute("CREATE TABLE t (id int, secret text DEFAULT 'kept')")
    run(flow, "GRANT INSERT (id) ON t TO {}", role)
    flow.kafka.produce(name, ['{"id":1}'])
    flow.begin(name, "t", by=connect(user=role), format="json")
    flow.read(name)
    assert flow.rows("SELECT * FROM t") == [(1, "kept")]

"""What a user says is to be done about an error comes before the default, in running workers too."""

from __future__ import annotations

import psycopg
import pytest

from pipeline_kafka.errors import DEFAULTS, OTHERS
from tests.fix_cluster import Connection
from tests.fix_feed import MakeFeed
from tests.fix_kafka import MakeTopic
from tests.integration.feeding import Feed
from tests.integration.flow import Flow
from tests.testbed.wait import wait_until

ACTIONS = "SELECT code, action, default_action, is_rule FROM pipeline_kafka.error_actions"


@pytest.fixture
def made(admin: Connection, feed: MakeFeed) -> Feed:
    admin.execute("CREATE TABLE t (id int CHECK (id <> 2), name text)")
    return feed()


def set_rule(connection: Connection, code: str | None, action: str | None) -> None:
    connection.execute("SELECT pipeline_kafka.set_error_rule(%s, %s)", (code, action))


def test_the_defaults_are_those_of_the_workers_code(admin: Connection) -> None:
    expected = [(code, default.action.value, default.action.value, False) for code, default in DEFAULTS.items()]
    others = (None, OTHERS.action.value, OTHERS.action.value, False)
    assert admin.execute(ACTIONS).fetchall() == [*sorted(expected), others]


def test_rules_and_defaults_are_shown_together(admin: Connection) -> None:
    for code, action in (("23", "retry"), ("23505", "set_aside"), ("42", "set_aside"), ("AB123", "pause")):
        set_rule(admin, code, action)
    shown: dict[str | None, tuple[object, ...]] = {code: tuple(rest) for code, *rest in admin.execute(ACTIONS)}
    assert shown["23"] == ("retry", "set_aside", True)
    assert shown["23505"] == ("set_aside", "set_aside", True)
    assert shown["42501"] == ("set_aside", "pause", False)  # as its class
    assert shown["AB123"] == ("pause", "set_aside", True)
    set_rule(admin, "23", "pause")
    assert ("23", "pause") in admin.execute("SELECT code, action FROM pipeline_kafka.error_rules").fetchall()


@pytest.mark.parametrize(("action", "wait"), [("retry", 0.1), ("pause", 1.0)])
@pytest.mark.parametrize("code", ["23", "23514"])
def test_a_message_that_is_not_to_be_set_aside(made: Feed, code: str, action: str, wait: float) -> None:
    set_rule(made.admin, code, action)
    failure = made.send('{"id":1}', '{"id":2}')
    assert failure is not None
    assert failure.retry_in == wait
    assert (made.letters(), made.rows("SELECT * FROM t"), made.next_offset()) == ([], [], 0)


def test_a_decoders_refusal_follows_the_rules(made: Feed) -> None:
    set_rule(made.admin, "22P02", "pause")
    failure = made.send('{"id":1}', "{")
    assert failure is not None
    assert failure.retry_in == 1.0
    assert made.state()["last_error"] == "events[0] offset 1: invalid JSON: cut off at byte 1"
    assert made.letters() == []


def test_an_outage_that_is_to_be_set_aside(made: Feed) -> None:
    set_rule(made.admin, "42P01", "set_aside")
    made.admin.execute(
        """CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF NEW.id = 3 THEN INSERT INTO gone VALUES (1); END IF; RETURN NEW;
           END $$;
           CREATE TRIGGER log BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION log()"""
    )
    assert made.send('{"id":1}', '{"id":3}', '{"id":4}') is None
    assert made.letters() == [(0, 1, "42P01")]
    assert made.column("SELECT id FROM t") == [1, 4]


def test_a_retry_of_letters_follows_the_rules(made: Feed) -> None:
    made.send('{"id":2}')
    set_rule(made.admin, "23514", "pause")
    with pytest.raises(psycopg.errors.CheckViolation, match=r'^new row for relation "t" violates check constraint'):
        made.admin.execute("SELECT pipeline_kafka.retry_dead_letters()")
    assert made.letter()["tries"] == 1


@pytest.mark.parametrize("code", ["2", "2350", "23505 ", "23a", "235055", "", None])
def test_what_is_no_code(admin: Connection, code: str | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="neither a SQLSTATE nor a class"):
        set_rule(admin, code, "retry")


@pytest.mark.parametrize("action", ["skip", "", None])
def test_what_is_no_action(admin: Connection, action: str | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="action is"):
        set_rule(admin, "23", action)


def test_a_rule_that_is_not_there_is_not_taken_back(admin: Connection) -> None:
    set_rule(admin, "23505", "retry")
    assert admin.execute("SELECT pipeline_kafka.unset_error_rule('23505')").fetchone() == ("success",)
    with pytest.raises(psycopg.errors.UndefinedObject, match='no rule for "23505"'):
        admin.execute("SELECT pipeline_kafka.unset_error_rule('23505')")


def test_a_running_worker_takes_rules_up(flow: Flow, topic: MakeTopic) -> None:
    name = topic()
    flow.admin.execute("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE t (id int REFERENCES p)")
    flow.begin(name, "t")
    flow.kafka.produce(name, ["1"])
    flow.read(name)
    assert flow.aside(name) == [(0, 0, "23503")]
    set_rule(flow.admin, "23503", "retry")
    sent = ["1"]

    def failing_yet() -> bool:
        """Those that come before the worker knows the rule are set aside."""
        sent.append(str(len(sent) + 1))
        flow.kafka.produce(name, [sent[-1]])
        return bool(flow.status(name, "t")["state"] == "failing")

    wait_until(failing_yet, "the worker knows the rule")
    flow.admin.execute("INSERT INTO p SELECT generate_series(2, 10000)")
    flow.read(name)
    aside = flow.column("SELECT convert_from(value, 'UTF8') FROM pipeline_kafka.dead_letters ORDER BY id")
    loaded = flow.column("SELECT id::text FROM t ORDER BY id")
    assert aside + loaded == sent
    assert len(loaded) > 0

"""Whose rights a retry has, who may begin it, and what two of them at once do."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import psycopg
import pytest

from tests.fix_cluster import Connect, Connection
from tests.fix_feed import MakeFeed
from tests.integration.classes import BY_ROLE
from tests.integration.feeding import Feed
from tests.integration.test_begin_as import ESCAPES, SWALLOW

RETRY = "SELECT retried, loaded, failed FROM pipeline_kafka.retry_dead_letters()"
OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


@pytest.fixture
def owned(admin: Connection, feed: MakeFeed) -> Feed:
    """Letters 0 to 2 of a consumer of role app into t(id text, by text), which it may write to by now."""
    admin.execute(BY_ROLE.format("app") + BY_ROLE.format("clerk") + "CREATE TABLE t (id int, by text)")
    admin.execute(
        """GRANT INSERT ON t TO app; GRANT CREATE ON SCHEMA public TO app;
           ALTER ROLE app SET search_path = apart, public;
           CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               NEW.by := current_user || ' ' || session_user || ' ' || current_setting('search_path'); RETURN NEW;
           END $$;
           CREATE TRIGGER note BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()"""
    )
    made = feed(owner="app")
    made.send(*(f'{{"id":"x{n}"}}' for n in range(3)))
    admin.execute("ALTER TABLE t ALTER id TYPE text")
    return made


def test_rows_are_written_as_the_owner(owned: Feed) -> None:
    assert owned.rows(RETRY) == [(3, 3, 0)]
    assert owned.column("SELECT by FROM t") == ["app postgres apart, public"] * 3
    assert owned.value("SELECT current_user::text") == "postgres"


def test_a_trigger_does_not_get_out_of_the_owners_role(owned: Feed) -> None:
    tries = " ".join(
        SWALLOW.replace("{}", attack.format(admin="postgres", admin_name="'postgres'", owner="app")) + ";"
        for attack in ESCAPES.values()
    )
    body = f"BEGIN {tries} NEW.by := current_user; RETURN NEW; END"
    owned.admin.execute(psycopg.sql.SQL(
        "CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS {}").format(body))  # fmt: skip
    assert owned.rows(RETRY) == [(3, 3, 0)]
    assert owned.column("SELECT by FROM t") == ["app"] * 3


def test_a_trigger_that_guesses_at_the_token_ends_the_retry(owned: Feed) -> None:
    guess = "BEGIN PERFORM pipeline_kafka.end_as(repeat('0', 36)); EXCEPTION WHEN OTHERS THEN NULL; END;"
    owned.admin.execute(psycopg.sql.SQL(
        "CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS {}"
    ).format(f"BEGIN {guess} RETURN NEW; END"))  # fmt: skip
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"^permission denied to end_as\(\)"):
        owned.admin.execute(RETRY)
    assert (owned.rows("SELECT * FROM t"), len(owned.letters())) == ([], 3)


def test_what_is_not_the_messages_fault_ends_the_retry(owned: Feed) -> None:
    owned.admin.execute("REVOKE INSERT ON t FROM app")
    before = owned.rows("SELECT * FROM pipeline_kafka.dead_letters")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"^permission denied for table t"):
        owned.admin.execute(RETRY)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"^permission denied for table t"):
        owned.admin.execute("SELECT pipeline_kafka.retry_dead_letter(1)")
    assert owned.rows("SELECT * FROM pipeline_kafka.dead_letters") == before


def test_a_row_that_a_policy_refuses_stays(owned: Feed) -> None:
    owned.admin.execute(
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON t FOR INSERT WITH CHECK (id <> 'x1')"
    )
    assert owned.rows(RETRY) == [(3, 2, 1)]
    assert owned.letters() == [(0, 1, "42501")]


def test_a_format_that_the_relation_cannot_take_ends_the_retry(owned: Feed) -> None:
    owned.admin.execute("UPDATE pipeline_kafka.consumers SET format = 'raw'")
    with pytest.raises(psycopg.errors.DatatypeMismatch, match=r"^dead letter 1: format raw needs a relation with"):
        owned.admin.execute(RETRY)


def test_letters_of_a_relation_that_was_dropped(owned: Feed) -> None:
    owned.admin.execute("DROP TABLE t")
    assert owned.rows(RETRY) == [(0, 0, 0)]
    with pytest.raises(psycopg.errors.UndefinedTable, match="relation of dead letter 1 was dropped"):
        owned.admin.execute("SELECT pipeline_kafka.retry_dead_letter(1)")
    assert owned.value("SELECT pipeline_kafka.discard_dead_letters()") == 3


def test_a_consumer_that_has_ended_is_retried_all_the_same(owned: Feed) -> None:
    owned.admin.execute("SELECT pipeline_kafka.consume_end()")
    assert owned.rows(RETRY) == [(3, 3, 0)]


# -- who may ----------------------------------------------------------------------------------------


def grants(role: str) -> list[str]:
    """What operations.md has granted to a role."""
    code = "\n".join(re.findall(r"^    (.*)$", OPERATIONS.read_text(), re.MULTILINE))
    return re.findall(rf"^GRANT [^;]*?\sTO {role};", code, re.MULTILINE)


def test_a_clerk_with_the_grants_of_the_manual_mends_letters(owned: Feed, connect: Connect) -> None:
    clerk = connect(user="clerk")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        clerk.execute(RETRY)
    assert len(grants("clerk")) == 7
    for grant in grants("clerk"):
        owned.admin.execute(grant.encode())
    assert len(clerk.execute("SELECT * FROM pipeline_kafka.dead_letters_shown").fetchall()) == 3
    assert len(clerk.execute("SELECT * FROM pipeline_kafka.dead_letters_summary").fetchall()) == 1
    clerk.execute("""SELECT pipeline_kafka.fix_dead_letter(1, '{"id":"y"}')""")
    assert clerk.execute("SELECT loaded FROM pipeline_kafka.retry_dead_letter(1)").fetchone() == (True,)
    assert clerk.execute("SELECT * FROM pipeline_kafka.retry_dead_letters(max => 1)").fetchone() == (1, 1, 0)
    clerk.execute("SELECT pipeline_kafka.discard_dead_letter(3)")
    assert clerk.execute("SELECT pipeline_kafka.discard_dead_letters()").fetchone() == (0,)
    assert owned.rows("SELECT id, by FROM t ORDER BY id") == [
        ("x1", "app clerk apart, public"),
        ("y", "app clerk apart, public"),
    ]
    outcomes = "SELECT outcome, by::text FROM pipeline_kafka.dead_letter_outcomes ORDER BY at"
    assert owned.rows(outcomes) == [("loaded", "clerk"), ("loaded", "clerk"), ("discarded", "clerk")]


def test_who_is_no_member_of_the_owners_role_loads_nothing(owned: Feed, connect: Connect) -> None:
    for grant in grants("clerk"):
        owned.admin.execute(grant.encode())
    owned.admin.execute("REVOKE app FROM clerk")
    with pytest.raises(
        psycopg.errors.InsufficientPrivilege, match=r'^permission denied to begin_as\(\) "app"'
    ) as refused:
        connect(user="clerk").execute(RETRY)
    assert "Connect as app, as a member of that role, or as a superuser." in str(refused.value)


# -- two at once ------------------------------------------------------------------------------------


def test_letters_that_another_session_tries_are_passed_over(owned: Feed, connect: Connect) -> None:
    other = connect()
    with other.transaction():
        other.execute("SELECT pipeline_kafka.retry_dead_letter(2)")
        assert owned.rows(RETRY) == [(2, 2, 0)]
        for call in ("retry_dead_letter(2)", "fix_dead_letter(2, 'x')", "discard_dead_letter(2)"):
            with pytest.raises(psycopg.errors.LockNotAvailable, match="another session is at work on dead letter 2"):
                owned.admin.execute(f"SELECT pipeline_kafka.{call}".encode())
    assert owned.column("SELECT id FROM t") == ["x0", "x1", "x2"]
    with pytest.raises(psycopg.errors.UndefinedObject):
        owned.admin.execute("SELECT pipeline_kafka.retry_dead_letter(2)")


def test_every_letter_is_loaded_once_by_whichever_of_many_sessions(owned: Feed, connect: Connect) -> None:
    owned.send(*(f'{{"id":"a{n}","by":1}}' for n in range(300)))
    owned.admin.execute("DELETE FROM t; ALTER TABLE t ADD CHECK (id <> 'never'); ALTER TABLE t ADD UNIQUE (id)")
    owned.rewind()
    owned.admin.execute("ALTER TABLE t ADD CONSTRAINT none CHECK (false) NOT VALID")
    owned.send(*(f'{{"id":"a{n}"}}' for n in range(300)))
    owned.admin.execute("ALTER TABLE t DROP CONSTRAINT none")
    found: list[tuple[int, ...]] = []
    sessions = [connect() for _ in range(4)]
    threads = [threading.Thread(target=lambda s=s: found.extend(s.execute(RETRY).fetchall())) for s in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(loaded for _, loaded, _ in found) == 300
    assert sum(failed for _, _, failed in found) == 0
    assert owned.value("SELECT count(*) FROM t") == 300
    assert owned.letters() == []


def test_a_retry_can_be_cancelled(owned: Feed) -> None:
    owned.admin.execute("CREATE OR REPLACE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
                        " 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'")  # fmt: skip
    with owned.admin.transaction(), pytest.raises(psycopg.errors.QueryCanceled), owned.admin.transaction():
        owned.admin.execute("SET LOCAL statement_timeout = '300ms'")
        owned.admin.execute(RETRY)
    assert len(owned.letters()) == 3

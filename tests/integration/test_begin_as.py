"""What the owner of a relation can try while a worker writes as that owner: triggers that want out of the role."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest
from psycopg import errors

from tests.fix_cluster import Connect, Connection
from tests.integration.owner import Owner, begin_as, copy, end_as, switched, token, value, who

ESCAPES = {
    "RESET ROLE": "RESET ROLE",
    "SET ROLE": "SET ROLE {admin}",
    "SET ROLE NONE": "SET ROLE NONE",
    "SET LOCAL ROLE": "SET LOCAL ROLE {admin}",
    "set_config": "PERFORM set_config('role', {admin_name}, false)",
    "set_config, local": "PERFORM set_config('role', 'none', true)",
    "SET SESSION AUTHORIZATION": "SET SESSION AUTHORIZATION {admin}",
    "RESET SESSION AUTHORIZATION": "RESET SESSION AUTHORIZATION",
    "SET LOCAL in a DO block": "EXECUTE 'DO $do$ BEGIN SET LOCAL ROLE NONE; END $do$'",
    "a role of its own making": "EXECUTE 'CREATE ROLE made_by_trigger SUPERUSER'",
    "ALTER ROLE": "ALTER ROLE {owner} SUPERUSER",
    "GRANT": "GRANT {admin} TO {owner}",
    "GRANT pg_read_all_data": "GRANT pg_read_all_data TO {owner}",
    "begin_as": "PERFORM pipeline_kafka.begin_as({admin_name}::regrole, repeat('x', 32))",
    "start_workers": "PERFORM pipeline_kafka.start_workers(1)",
    "COPY TO PROGRAM": "COPY (SELECT 1) TO PROGRAM 'true'",
    "COPY FROM a file": "COPY seen FROM '/etc/passwd'",
    "pg_read_file": "PERFORM pg_read_file('PG_VERSION')",
    "pg_authid": "PERFORM rolpassword FROM pg_authid",
    "the passwords for Kafka": "PERFORM value FROM pipeline_kafka.secrets",
    "session_replication_role": "SET session_replication_role = replica",
    "a temporary table": "CREATE TEMPORARY TABLE pg_class (oid oid)",
    "a cursor that outlives the switch": "EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1'",
    "PREPARE": "EXECUTE 'PREPARE p AS SELECT 1'",
    "LISTEN": "EXECUTE 'LISTEN pipeline_kafka'",
    "an untrusted language": "EXECUTE 'CREATE FUNCTION f() RETURNS int LANGUAGE plpython3u AS ''return 1'''",
    "an event trigger": "EXECUTE 'CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION trap()'",
}
GUESSES = {
    "a guess": "PERFORM pipeline_kafka.end_as(repeat('0', 32))",
    "an empty guess": "PERFORM pipeline_kafka.end_as('')",
    "a null guess": "PERFORM pipeline_kafka.end_as(NULL)",
}
SWALLOW = "BEGIN {}; EXCEPTION WHEN OTHERS THEN NULL; END"
DEFERRED = "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {} DEFERRABLE {} FOR EACH ROW EXECUTE FUNCTION trap()"


@pytest.fixture
def owner(admin: Connection) -> Generator[Owner]:
    owner = Owner(admin)
    yield owner
    owner.drop()


def test_a_trigger_is_refused_what_its_role_may_not(admin: Connection, owner: Owner) -> None:
    outcomes = {}
    for name, attack in ESCAPES.items():
        owner.plant(attack)
        try:
            with switched(admin, owner):
                copy(admin)
            outcomes[name] = "done"
        except psycopg.Error as error:
            outcomes[name] = error.sqlstate or "lost"
        assert who(admin) == admin.info.user, name
    assert outcomes == dict.fromkeys(ESCAPES, errors.InsufficientPrivilege.sqlstate)
    assert owner.seen == []


def test_a_trigger_that_swallows_the_refusal_is_still_inside(admin: Connection, owner: Owner) -> None:
    for attack in ESCAPES.values():
        owner.plant(SWALLOW.replace("{}", attack))
        with switched(admin, owner):
            copy(admin)
    assert owner.seen == [owner.name] * len(ESCAPES)


@pytest.mark.parametrize("guess", GUESSES.values(), ids=GUESSES.keys())
def test_one_wrong_guess_leaves_only_a_rollback(admin: Connection, owner: Owner, guess: str) -> None:
    owner.plant(SWALLOW.replace("{}", guess))
    with admin.transaction():
        with pytest.raises(errors.InsufficientPrivilege, match="end_as"), switched(admin, owner):
            copy(admin)
        assert who(admin) == admin.info.user
        assert owner.seen == []
        owner.plant("NULL")
        with switched(admin, owner):  # the savepoint was rolled back, and the transaction goes on
            copy(admin)
    assert owner.seen == [owner.name]


def test_the_token_is_nowhere_to_be_read(admin: Connection, connect: Connect, owner: Owner) -> None:
    owner.plant("""INSERT INTO seen SELECT current_query() UNION ALL SELECT query FROM pg_stat_activity
        UNION ALL SELECT statement || parameter_types::text FROM pg_prepared_statements
        UNION ALL SELECT name || statement FROM pg_cursors UNION ALL SELECT name || setting FROM pg_settings
        UNION ALL SELECT locktype || objid FROM pg_locks""")
    for times in range(8):  # psycopg prepares what it has sent five times
        with switched(admin, owner) as secret:
            copy(admin)
            outside = connect().execute("SELECT query FROM pg_stat_activity").fetchall()
        assert not any(secret in str(text) for text in [*owner.seen, *outside]), f"sent {times} times before"


def test_a_deferred_trigger_runs_inside(admin: Connection, owner: Owner) -> None:
    owner.own(DEFERRED.format("t", "INITIALLY DEFERRED"))
    with switched(admin, owner):
        copy(admin)
        assert owner.seen == [owner.name] * 2
    assert owner.seen == [owner.name] * 2


def test_a_deferred_trigger_does_not_wait_for_the_way_back(admin: Connection, owner: Owner) -> None:
    owner.own(DEFERRED.format("t", "INITIALLY DEFERRED"))
    with pytest.raises(errors.InsufficientPrivilege, match="deferred"), switched(admin, owner):
        admin.execute("SET CONSTRAINTS ALL DEFERRED")
        copy(admin)


def test_a_trigger_cannot_defer_another(admin: Connection, owner: Owner) -> None:
    owner.own("CREATE TABLE later (id int); " + DEFERRED.format("later", ""))
    owner.plant("IF TG_TABLE_NAME = 't' THEN SET CONSTRAINTS ALL DEFERRED; INSERT INTO later VALUES (1); END IF")
    with pytest.raises(errors.InsufficientPrivilege, match="deferred"), switched(admin, owner):
        copy(admin)


@pytest.mark.parametrize("scope", ["LOCAL", "SESSION"])
def test_settings_of_a_trigger_end_with_the_switch(admin: Connection, owner: Owner, scope: str) -> None:
    values = {
        "search_path": "evil",
        "datestyle": "SQL, DMY",
        "row_security": "off",
        "statement_timeout": "12345ms",
        "standard_conforming_strings": "off",
    }
    before = {name: value(admin, f"SHOW {name}") for name in values}
    owner.plant("; ".join(f"SET {scope} {name} = '{new}'" for name, new in values.items() if "," not in new))
    with admin.transaction():
        with switched(admin, owner):
            copy(admin)
            assert value(admin, "SHOW statement_timeout") == "12345ms"
        assert {name: value(admin, f"SHOW {name}") for name in values} == before
    assert {name: value(admin, f"SHOW {name}") for name in values} == before


def test_a_security_definer_function_leads_back_inside(admin: Connection, owner: Owner) -> None:
    admin.execute("""CREATE FUNCTION trusted() RETURNS text LANGUAGE sql SECURITY DEFINER
        AS 'SELECT current_user::text'""")
    owner.plant("INSERT INTO seen VALUES (trusted())")
    with switched(admin, owner):
        copy(admin)
    assert owner.seen == [admin.info.user, owner.name]


def test_begin_as_is_refused_in_a_security_definer_function(admin: Connection, owner: Owner) -> None:
    admin.execute(f"""CREATE FUNCTION lure() RETURNS void LANGUAGE sql SECURITY DEFINER
        AS $$SELECT pipeline_kafka.begin_as({owner.oid}, 'known to the attacker')$$""")
    with pytest.raises(errors.InvalidTransactionState, match="SECURITY DEFINER"):
        admin.execute("SELECT lure()")


def test_begin_as_does_not_nest(admin: Connection, owner: Owner) -> None:
    admin.execute("GRANT EXECUTE ON FUNCTION pipeline_kafka.begin_as TO PUBLIC")
    with pytest.raises(errors.InvalidTransactionState, match="within begin_as"), switched(admin, owner):
        begin_as(admin, owner.oid, token())


def test_a_commit_before_end_as_is_refused(admin: Connection, owner: Owner) -> None:
    with pytest.raises(errors.InvalidTransactionState, match="between begin_as"), admin.transaction():
        begin_as(admin, owner.oid, token())
        copy(admin)
    assert who(admin) == admin.info.user
    assert value(admin, "SELECT count(*) FROM t") == 0


def test_a_statement_outside_of_a_transaction_does_not_switch(admin: Connection, owner: Owner) -> None:
    with pytest.raises(errors.InvalidTransactionState):
        begin_as(admin, owner.oid, token())
    assert who(admin) == admin.info.user


def test_prepare_transaction_before_end_as_is_refused(admin: Connection, owner: Owner) -> None:
    admin.execute("BEGIN")
    begin_as(admin, owner.oid, token())
    with pytest.raises(errors.InvalidTransactionState):
        admin.execute("PREPARE TRANSACTION 'switched'")
    assert who(admin) == admin.info.user


def test_a_savepoint_is_not_released_before_end_as(admin: Connection, owner: Owner) -> None:
    with admin.transaction():
        admin.execute("SAVEPOINT range")
        begin_as(admin, owner.oid, token())
        with pytest.raises(errors.InvalidTransactionState):
            admin.execute("RELEASE range")
        raise psycopg.Rollback()
    assert who(admin) == admin.info.user


def test_rolling_back_to_the_savepoint_switches_back(admin: Connection, owner: Owner) -> None:
    with admin.transaction():
        admin.execute("SET LOCAL statement_timeout = 54321; SAVEPOINT range")
        begin_as(admin, owner.oid, token())
        admin.execute("SET LOCAL statement_timeout = 12345; SAVEPOINT inner_range")
        copy(admin)
        with pytest.raises(errors.UndefinedTable):
            admin.execute("SELECT FROM no_such_table")
        admin.execute("ROLLBACK TO range")
        assert who(admin) == admin.info.user
        assert value(admin, "SHOW statement_timeout") == "54321ms"
        with switched(admin, owner):
            copy(admin)
    assert value(admin, "SELECT count(*) FROM t") == 1


def test_end_as_in_another_savepoint_is_refused(admin: Connection, owner: Owner) -> None:
    with admin.transaction():
        secret = token()
        begin_as(admin, owner.oid, secret)
        admin.execute("SAVEPOINT range")
        with pytest.raises(errors.InsufficientPrivilege):
            end_as(admin, secret)  # rolled back, it would be switched and nobody would know
        admin.execute("ROLLBACK TO range")
        assert who(admin) == owner.name
        raise psycopg.Rollback()
    assert who(admin) == admin.info.user


def test_end_as_without_begin_as(admin: Connection, connect: Connect, owner: Owner) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        end_as(admin, token())
    with switched(admin, owner) as secret, pytest.raises(errors.InsufficientPrivilege):
        end_as(connect(), secret)
    with pytest.raises(errors.InsufficientPrivilege):
        end_as(admin, secret)


def test_who_may_begin_as_whom(admin: Connection, connect: Connect, owner: Owner) -> None:
    session = connect(user=owner.name)
    superuser = value(admin, "SELECT current_user::regrole::oid::int")
    with pytest.raises(errors.InsufficientPrivilege, match="function begin_as"):
        begin_as(session, owner.oid, token())
    admin.execute(f"GRANT EXECUTE ON FUNCTION pipeline_kafka.begin_as TO {owner.name}")
    with pytest.raises(errors.InsufficientPrivilege, match="permission denied to begin_as"):
        begin_as(session, superuser, token())
    with switched(session, owner):
        copy(session)


@pytest.mark.parametrize("short", ["", "0123456789abcde", None])
def test_a_token_must_be_long(admin: Connection, owner: Owner, short: str | None) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="16 characters"):
        begin_as(admin, owner.oid, short)


@pytest.mark.parametrize("role", [0, 4_000_000_000, None])
def test_the_role_must_exist(admin: Connection, role: int | None) -> None:
    with pytest.raises(errors.UndefinedObject):
        begin_as(admin, role, token())

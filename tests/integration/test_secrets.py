"""Passwords and keys: stored verbatim, set by one function, and seen nowhere but where they are used."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

from tests.fix_cluster import Connect, Connection
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.postgres import bindir
from tests.testbed.process import plain_environment, run
from tests.testbed.secure_broker import PASSWORD

HUSH = "hush-hush"
SET = "SELECT pipeline_kafka.set_secret(%s, %s)"


def shown(connection: Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM pipeline_kafka.properties_shown").fetchall())


def stored(connection: Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM pipeline_kafka.secrets").fetchall())


def test_a_secret_is_stored_verbatim_and_shown_nowhere(admin: Connection, cluster: Cluster) -> None:
    seen = cluster.log_size()
    for name in ("sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "sasl.username"):
        assert admin.execute(SET, [name, PASSWORD]).fetchone() == ("success",)
    admin.execute("SELECT pipeline_kafka.set_property('client.id', ' as, it = is ')")
    assert shown(admin) == {**dict.fromkeys(stored(admin), "********"), "client.id": " as, it = is "}
    assert set(stored(admin).values()) == {PASSWORD}
    assert PASSWORD not in cluster.log(seen)


@pytest.mark.parametrize(
    "call",
    [
        f"set_property('sasl.password', '{HUSH}')",
        f"set_property('sasl.pasword', '{HUSH}')",
        f"set_secret('session.timeout.ms', '{HUSH}')",
        f"set_secret('debug', '{HUSH}')",
        f"set_secret('sasl.password', '{HUSH}', file => '/nowhere')",
        f"set_secret('group.id', '{HUSH}')",
    ],
)
def test_an_error_does_not_repeat_it(admin: Connection, cluster: Cluster, call: str) -> None:
    seen = cluster.log_size()
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        admin.execute(f"SELECT pipeline_kafka.{call}".encode())
    diag = refused.value.diag
    said = f"{refused.value} {diag.message_detail} {diag.message_hint} {diag.context}"
    assert HUSH not in f"{said} {cluster.log(seen)}"
    assert stored(admin) == {}


def test_a_warning_does_not_repeat_it(admin: Connection, cluster: Cluster) -> None:
    seen = cluster.log_size()
    said: list[str] = []
    admin.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    admin.execute("SELECT pipeline_kafka.set_property('security.protocol', 'SSL')")
    admin.execute(SET, ["ssl.key.pem", HUSH])
    assert len(said) == 1
    assert "not in PEM format" in said[0]
    assert HUSH not in f"{said} {cluster.log(seen)}"


def test_a_secret_in_a_file_is_nowhere_even_where_all_is_logged(
    admin: Connection, connect: Connect, cluster: Cluster, folder: Path
) -> None:
    seen = cluster.log_size()
    (folder / "password").write_text(f"{PASSWORD}\n")
    for setting in ("log_statement = 'all'", "log_min_duration_statement = 0", "log_parameter_max_length = -1"):
        admin.execute(f"SET {setting}".encode())
    admin.execute("SELECT pipeline_kafka.set_secret('sasl.password', file => %s)", [str(folder / "password")])
    assert stored(connect()) == {"sasl.password": PASSWORD}
    activity = connect().execute("SELECT string_agg(query, ' ') FROM pg_stat_activity").fetchone()
    assert "set_secret" in cluster.log(seen)
    assert PASSWORD not in f"{activity} {cluster.log(seen)}"
    with pytest.raises(psycopg.errors.UndefinedFile, match="/no/such/file") as missing:
        admin.execute("SELECT pipeline_kafka.set_secret('sasl.password', file => '/no/such/file')")
    assert "on the server's machine" in (missing.value.diag.message_hint or "")


def test_a_secret_of_the_client_by_copy_is_nowhere_even_where_all_is_logged(
    admin: Connection, connect: Connect, cluster: Cluster
) -> None:
    seen = cluster.log_size()
    admin.execute("CREATE TEMP TABLE given (value text)")
    admin.execute("SET log_statement = 'all'")
    with admin.cursor().copy("COPY given FROM STDIN") as copy:
        copy.write_row([PASSWORD])
    admin.execute("SELECT pipeline_kafka.set_secret('sasl.password', value) FROM given")
    activity = connect().execute("SELECT string_agg(query, ' ') FROM pg_stat_activity").fetchone()
    assert stored(connect()) == {"sasl.password": PASSWORD}
    assert PASSWORD not in f"{activity} {cluster.log(seen)}"


@pytest.fixture
def counting(folder: Path) -> Generator[Connection]:
    """A database of a server of its own that counts statements, also those within functions."""
    libraries = "pipeline_kafka,pg_stat_statements"
    settings = {"shared_preload_libraries": libraries, "pg_stat_statements.track": "all"}
    with (
        Cluster(folder / "counting", preload=False, settings=settings).start() as cluster,
        Database(cluster, "counting").create().connect() as connection,
    ):
        connection.execute("CREATE EXTENSION pg_stat_statements")
        yield connection


def test_pg_stat_statements_does_not_have_it(counting: Connection) -> None:
    counting.execute(f"SELECT pipeline_kafka.set_secret('sasl.password', '{HUSH}')".encode())
    counting.execute(SET, ["sasl.password", PASSWORD])
    queries = "\n".join(query for (query,) in counting.execute("SELECT query FROM pg_stat_statements"))
    assert "set_secret" in queries
    assert "INSERT INTO pipeline_kafka.secrets" in queries
    assert HUSH not in queries
    assert PASSWORD not in queries


def test_only_whom_it_is_granted_by_name_may_read(admin: Connection, connect: Connect) -> None:
    admin.execute(SET, ["sasl.password", PASSWORD])
    for role, group in (("watcher", "pg_monitor"), ("backup", "pg_read_all_data"), ("kafka_worker", "pg_monitor")):
        make = f"CREATE ROLE {role} LOGIN IN ROLE {group}"
        admin.execute(f"DO $$ BEGIN {make}; EXCEPTION WHEN duplicate_object THEN END $$".encode())
        admin.execute(f"GRANT {group} TO {role}".encode())  # another test may have made it
    admin.execute("GRANT SELECT ON pipeline_kafka.secrets TO kafka_worker")
    assert shown(connect(user="watcher")) == {"sasl.password": "********"}
    assert stored(connect(user="backup")) == {}
    assert stored(connect(user="kafka_worker")) == {"sasl.password": PASSWORD}
    calls = [
        "SELECT * FROM pipeline_kafka.properties",
        "SELECT * FROM pipeline_kafka.secrets",
        "SELECT pipeline_kafka.set_property('client.id', 'x')",
        "SELECT pipeline_kafka.set_secret('client.id', 'x')",
        "SELECT pipeline_kafka.check_property('client.id', 'x')",
        "SELECT pipeline_kafka.add_broker('a:1')",
    ]
    watcher = connect(user="watcher")
    for call in calls:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            watcher.execute(call.encode())


def dump(database: Database, *options: str) -> str:
    return run([bindir() / "pg_dump", f"--dbname={database.dsn()}", "--data-only", *options], env=plain_environment())


def test_dumps_have_it_unless_told(admin: Connection, database: Database) -> None:
    admin.execute(SET, ["sasl.password", "in the dump"])
    admin.execute("SELECT pipeline_kafka.set_secret('ssl.key.password', %s, in_dumps => false)", [HUSH])
    whole = dump(database)
    assert "in the dump" in whole
    assert HUSH not in whole
    assert "in the dump" not in dump(database, "--exclude-table-data=pipeline_kafka.secrets")


def test_a_property_is_a_secret_or_not(admin: Connection) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is a secret") as refused:
        admin.execute("SELECT pipeline_kafka.set_property('ssl.key.pem', 'x')")
    assert "set_secret()" in (refused.value.diag.message_hint or "")
    with pytest.raises(psycopg.errors.CheckViolation):
        admin.execute("INSERT INTO pipeline_kafka.properties VALUES ('sasl.password', 'x')")
    admin.execute(SET, ["client.id", "hidden"])
    assert shown(admin) == {"client.id": "********"}
    admin.execute("SELECT pipeline_kafka.set_property('client.id', 'seen')")
    assert shown(admin) == {"client.id": "seen"}
    assert stored(admin) == {}
    admin.execute(SET, ["client.id", "hidden again"])
    assert shown(admin) == {"client.id": "********"}
    admin.execute("SELECT pipeline_kafka.unset_property('client.id')")
    assert shown(admin) == {}


SECRET_NAMES = {
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
}
OPEN_NAMES = {
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.location",
    "sasl.username",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.assertion.private.key.file",
    "security.protocol",
}


def test_secrets_are_told_by_their_names(admin: Connection) -> None:
    names = [*SECRET_NAMES, *OPEN_NAMES]
    rows = admin.execute("SELECT n FROM unnest(%s::text[]) n WHERE pipeline_kafka.is_secret(n)", [names]).fetchall()
    assert {name for (name,) in rows} == SECRET_NAMES


@pytest.mark.parametrize("arguments", ["'sasl.password'", "'sasl.password', ''", "NULL, 'x'", "'a', 'x', NULL, NULL"])
def test_what_is_missing_is_said(admin: Connection, arguments: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        admin.execute(f"SELECT pipeline_kafka.set_secret({arguments})".encode())

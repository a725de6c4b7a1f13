"""Arguments that are refused: each error names what is wrong and a remedy, and nothing is stored."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest

from tests.fix_cluster import Connection, new_database
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database


@pytest.fixture(scope="module")
def database(cluster: Cluster) -> Generator[Database]:
    """One for all, since nothing is stored, with a table t."""
    for database in new_database(cluster):
        with database.connect() as admin:
            admin.execute("CREATE TABLE t (id int)")
        yield database


def count(connection: Connection, table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM pipeline_kafka.{table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("format => 'xml'", "xml"),
        ("delimiter => ''", "delimiter"),
        ("delimiter => 'ab'", '"ab"'),
        ("delimiter => E'\\n'", "delimiter"),
        ("delimiter => '\\'", "delimiter"),
        ("delimiter => 'a'", "delimiter"),
        ("format => 'csv', quote => '«'", "«"),
        ("quote => '''' ", "csv"),
        ("format => 'json', escape => '|'", "csv"),
        ("format => 'csv', delimiter => '\"'", "delimiter"),
        ("format => 'csv', delimiter => ';', quote => ';'", "delimiter"),
        ("batchsize => 0", "batchsize"),
        ("batchsize => 1000001", "batchsize"),
        ("maxbytes => 0", "maxbytes"),
        ("parallelism => 0", "parallelism"),
        ("parallelism => 1025", "parallelism"),
        ("timeout => -1", "timeout"),
        ("timeout => 60001", "timeout"),
        ("start_offset => -3", "start_offset"),
        ("on_error => 'panic'", "on_error"),
        ("on_offset_lost => 'panic'", "on_offset_lost"),
        ("max_dead_letters => -1", "max_dead_letters is -1, which is not within 0 to"),
        ("start_last_interval => '-1 hour'", "start_last_interval is -01:00:00"),
        ("format => 'json', delimiter => ','", "delimiter goes with"),
        ("format => 'raw', delimiter => ','", "delimiter goes with"),
    ],
)
def test_wrong_arguments_are_named(admin: Connection, arguments: str, said: str) -> None:
    with pytest.raises((psycopg.errors.InvalidParameterValue, psycopg.errors.CheckViolation)) as refused:
        admin.execute(f"SELECT pipeline_kafka.consume_begin('topic', 't', {arguments})".encode())
    diag = refused.value.diag
    assert said in (diag.message_primary or "")
    assert diag.message_hint, diag.message_primary
    assert count(admin, "consumers") == 0


def test_what_has_no_value_of_its_own_is_taken_back(admin: Connection) -> None:
    query = "SELECT group_id, max_dead_letters FROM pipeline_kafka.consumers"
    with admin.transaction(force_rollback=True):
        admin.execute("SELECT pipeline_kafka.consume_begin('topic', 't', group_id => 'mine', max_dead_letters => 5)")
        admin.execute("SELECT pipeline_kafka.consume_begin('topic', 't', format => 'csv')")
        assert admin.execute(query).fetchone() == ("mine", 5)
        admin.execute("SELECT pipeline_kafka.consume_begin('topic', 't', group_id => '', max_dead_letters => 0)")
        assert admin.execute(query).fetchone() == (None, None)


@pytest.mark.parametrize("relation", ["passing", "pg_catalog.pg_class", "pipeline_kafka.brokers"])
def test_what_is_not_a_users_own_to_fill_is_refused(admin: Connection, relation: str) -> None:
    admin.execute("CREATE TEMPORARY TABLE passing (id int)")
    with pytest.raises(psycopg.errors.WrongObjectType, match=relation.rpartition(".")[2]) as refused:
        admin.execute("SELECT pipeline_kafka.consume_begin('topic', %s)", [relation])
    assert refused.value.diag.message_hint


def test_an_unlogged_table_is_warned_of(admin: Connection) -> None:
    said: list[str] = []
    admin.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    with admin.transaction(force_rollback=True):
        admin.execute("CREATE UNLOGGED TABLE light (id int); SELECT pipeline_kafka.consume_begin('topic', 'light')")
    assert [text for text in said if "light is unlogged" in text] != []


@pytest.mark.parametrize("topic", ["", "a b", "a/b", ".", "..", "naïve", "x" * 250, "^", "^(unclosed"])
def test_what_cannot_be_a_topic_is_refused(admin: Connection, topic: str) -> None:
    with pytest.raises(psycopg.errors.DataError) as refused:
        admin.execute("SELECT pipeline_kafka.consume_begin(%s, 't')", [topic])
    assert refused.value.diag.message_hint, refused.value.diag.message_primary


@pytest.mark.parametrize(
    "host",
    ["", "kafka1", "kafka1:", ":9092", "kafka1:0", "kafka1:65536", "kafka1:99999999999999999999", "kafka1:port",
     "2001:db8::1:9092", "[2001:db8::1]", "a b:9092", "good:9092,", "good:9092,bad", "PLAINTEXT://a:9092", "a:1\n"],
)  # fmt: skip
def test_what_is_no_host_and_port_is_refused(admin: Connection, host: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not host:port") as refused:
        admin.execute("SELECT pipeline_kafka.add_broker(%s)", [host])
    assert "kafka1.example:9092" in (refused.value.diag.message_hint or "")
    assert count(admin, "brokers") == 0


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("no.such.property", "1", "No such configuration property"),
        ("session.timeout.ms", "soon", 'session.timeout.ms": "soon"'),
        ("session.timeout.ms", "-1", "session.timeout.ms"),
        ("security.protocol", "carrier pigeon", 'Invalid value "carrier pigeon"'),
        ("Session.Timeout.Ms", "5000", "No such configuration property"),
    ],
)
def test_what_librdkafka_refuses_is_refused_in_its_words(admin: Connection, name: str, value: str, reason: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f'does not take property "{name}".*{reason}'):
        admin.execute("SELECT pipeline_kafka.set_property(%s, %s)", [name, value])
    assert count(admin, "properties") == 0


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("group.id", "group_id"),
        ("bootstrap.servers", "add_broker"),
        ("metadata.broker.list", "add_broker"),
        ("auto.offset.reset", "start_offset"),
        ("enable.auto.commit", "after the rows"),
        ("group.instance.id", "slot"),
    ],
)
def test_what_the_worker_sets_itself_is_refused_with_the_remedy(admin: Connection, name: str, remedy: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is set by the worker itself") as refused:
        admin.execute("SELECT pipeline_kafka.set_property(%s, 'x')", [name])
    assert remedy in (refused.value.diag.message_hint or "")

"""The inputs that break systems of this kind, end to end. The numbers are those of the catalog of such cases.

Case 16, servers and networks that fail, is in tests/crash. One worker reads for all of these tests.
"""

from __future__ import annotations

from collections.abc import Generator
from decimal import Decimal
from typing import Any

import pytest

from tests.fix_cluster import new_database
from tests.fix_kafka import MakeTopic
from tests.integration.flow import Flow, Rows
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database

T = "id bigint, name text, at timestamptz, amount numeric, ok boolean"


@pytest.fixture(scope="module")
def database(cluster: Cluster) -> Generator[Database]:
    """One for all: see the module."""
    yield from new_database(cluster)


class Case:
    """A table, a topic and a consumer between them."""

    def __init__(self, flow: Flow, topic: str) -> None:
        self.flow = flow
        self.topic = topic
        self.table = '"' + topic[:20] + topic[-20:] + '"'

    def send(self, columns: str, *messages: str | bytes | None, format: str = "json", **settings: Any) -> Rows:
        """Make the table, let the messages flow into it, and return its rows in their order."""
        self.flow.admin.execute(f"CREATE TABLE {self.table} ({columns}, kafka_offset bigint)".encode())
        self.flow.kafka.produce(self.topic, messages)
        return self.read(format=format, **settings)

    def read(self, **settings: Any) -> Rows:
        self.flow.begin(self.topic, self.table, **settings)
        self.flow.read(self.topic)
        return self.rows()

    def rows(self) -> Rows:
        """What is in the table, without the offset."""
        return [row[:-1] for row in self.flow.rows(f"SELECT * FROM {self.table} ORDER BY kafka_offset, 1")]

    def aside(self) -> list[tuple[int, str]]:
        """(offset, SQLSTATE) of what was set aside."""
        return [(offset, sqlstate) for _, offset, sqlstate in self.flow.aside(self.topic)]


@pytest.fixture
def case(flow: Flow, topic: MakeTopic) -> Case:
    return Case(flow, topic())


def test_case_01_escapes(case: Case) -> None:
    rows = case.send(T, r'{"id":1,"name":"a\tb\nc\\d\"e"}')
    assert rows == [(1, 'a\tb\nc\\d"e', None, None, None)]


def test_case_02_zero_character(case: Case) -> None:
    rows = case.send(T, '{"id":0}', r'{"id":1,"name":"x\u0000y"}', '{"id":2}')
    assert [row[0] for row in rows] == [0, 2]
    assert case.aside() == [(1, "22P05")]


def test_case_03_thirty_digits(case: Case) -> None:
    number = 123456789012345678901234567890
    assert case.send(T, f'{{"id":{number}}}', f'{{"amount":{number}}}') == [(None, None, None, Decimal(number), None)]
    assert case.aside() == [(0, "22003")]


def test_case_04_every_digit(case: Case) -> None:
    rows = case.send(T, '{"amount":0.1000000000000000055511151231257827}', '{"amount":1e400}')
    assert [row[3] for row in rows] == [Decimal("0.1000000000000000055511151231257827"), Decimal(10) ** 400]


def test_case_05_defaults(case: Case) -> None:
    rows = case.send("id bigint, n serial, made timestamptz DEFAULT now()", '{"id":1}', '{"id":2}')
    assert [row[:2] for row in rows] == [(1, 1), (2, 2)]
    assert all(row[2] for row in rows)


def test_case_06_null_is_not_the_default(case: Case) -> None:
    assert case.send("id bigint, name text DEFAULT 'x'", '{"id":1,"name":null}') == [(1, None)]


def test_case_07_absent_in_one_message_of_a_batch(case: Case) -> None:
    assert case.send("id bigint, name text DEFAULT 'x'", '{"id":1}', '{"id":2,"name":"b"}') == [(1, "x"), (2, "b")]


@pytest.mark.parametrize("format", ["json", "text", "csv"])
def test_case_08_empty_and_tombstone(case: Case, format: str) -> None:
    assert case.send("id bigint, name text", "", None, format=format) == []
    assert [offset for offset, _ in case.aside()] == [0]
    status = case.flow.status(case.topic, case.table)
    assert (status["messages"], status["set_aside"], status["nulls"]) == (2, 1, 1)


def test_case_09_what_is_not_a_row(case: Case) -> None:
    rows = case.send("id bigint DEFAULT 7, n int", '{"id":1', "[]", "3", '"x"', "{}", b'{"id":"\xff"}')
    assert rows == [(7, None)]
    assert case.aside() == [(0, "22P02"), (2, "22P02"), (3, "22P02"), (5, "22021")]


def test_case_10_one_bad_message_in_ten_thousand(case: Case) -> None:
    rows = case.send("id int, n int", *(f'{{"id":"{"x" if n == 7777 else n}"}}' for n in range(10000)))
    assert rows == [(n, None) for n in range(10000) if n != 7777]
    assert case.aside() == [(7777, "22P02")]


def test_case_11_text_lines(case: Case) -> None:
    rows = case.send("id int, name text", "1\ta", "2\tb\n\\.\n3\tc", "4", "5\td\n", "6\te", format="text")
    assert rows == [(1, "a"), (5, "d"), (6, "e")]
    assert case.aside() == [(1, "22P04"), (2, "22P04")]


def test_case_12_unclosed_quote(case: Case) -> None:
    assert case.send("id int, name text", "1,a", '2,"b', "3,c", format="csv", delimiter=",") == [(1, "a"), (3, "c")]
    assert case.aside() == [(1, "22P04")]


def test_case_13_triggers_that_drop_and_refuse(case: Case) -> None:
    case.flow.admin.execute(
        f"""CREATE FUNCTION choose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NEW.id = 1 THEN RETURN NULL; END IF;
                IF NEW.id = 2 THEN RAISE 'no twos'; END IF;
                RETURN NEW;
            END $$;
            CREATE TABLE {case.table} (id int, kafka_offset bigint);
            CREATE TRIGGER choose BEFORE INSERT ON {case.table} FOR EACH ROW EXECUTE FUNCTION choose()""".encode()
    )
    case.flow.kafka.produce(case.topic, [f'{{"id":{n}}}' for n in range(4)])
    assert case.read(format="json") == [(0,), (3,)]
    assert case.aside() == [(2, "P0001")]
    assert "no twos" in case.flow.value("SELECT error FROM pipeline_kafka.dead_letters WHERE topic = %s", case.topic)


def test_case_14_one_of_two_relations_refuses_everything(case: Case) -> None:
    flow, refusing = case.flow, f'"refusing {case.topic}"'
    flow.admin.execute(
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE 'closed' USING ERRCODE = 'insufficient_privilege';
            END $$;
            CREATE TABLE {refusing} (id int);
            CREATE TRIGGER refuse BEFORE INSERT ON {refusing} FOR EACH ROW EXECUTE FUNCTION refuse();
            CREATE TABLE {case.table} (id int, kafka_offset bigint)""".encode()
    )
    flow.begin(case.topic, refusing, format="json")
    flow.begin(case.topic, case.table, format="json")
    for n in range(3):
        flow.kafka.produce(case.topic, [f'{{"id":{n}}}'])
        flow.read(case.topic, case.table)
    assert case.rows() == [(0,), (1,), (2,)]
    status = flow.wait_state(case.topic, refusing, "failing")
    assert "closed" in status["last_error"]
    offsets = """SELECT next_offset FROM pipeline_kafka.offsets o JOIN pipeline_kafka.consumers c ON c.id = consumer_id
                 WHERE c.relation = %s::regclass"""
    assert (flow.value(offsets, refusing), flow.value(offsets, case.table)) == (0, 3)
    flow.end(case.topic, refusing)


def test_case_15_dropped_and_changed_while_consuming(case: Case) -> None:
    flow, other = case.flow, f'"other {case.topic}"'
    flow.admin.execute(f"CREATE TABLE {other} (id int)".encode())
    flow.begin(case.topic, other, format="json")
    assert case.send("id int", '{"id":1,"extra":"a"}') == [(1,)]
    flow.admin.execute(f"DROP TABLE {other}; ALTER TABLE {case.table} ADD extra text, ALTER id TYPE text".encode())
    flow.kafka.produce(case.topic, ['{"id":"two","extra":"b"}'])
    flow.read(case.topic)
    assert flow.rows(f"SELECT id, extra FROM {case.table} ORDER BY kafka_offset") == [("1", None), ("two", "b")]
    query = "SELECT state, last_error FROM pipeline_kafka.consumers_status WHERE topic = %s ORDER BY state DESC"
    assert [row[0] for row in flow.rows(query, case.topic)] == ["stopped", "running"]
    assert "was dropped" in flow.rows(query, case.topic)[0][1]


def test_case_18_names_match_exactly(case: Case) -> None:
    message = '{"ID":1,"Name":"x"}'
    rows = case.send('"ID" bigint, "Name" text, id bigint DEFAULT 7, name text', message)
    assert rows == [(1, "x", 7, None)]

"""Mutated messages of each format, and what such messages have shown: `make fuzz` sends more of them."""

from __future__ import annotations

import random

import pytest

from tests.fix_kafka import MakeTopic
from tests.fuzz.account import account
from tests.fuzz.formats import FORMATS
from tests.fuzz.run import PARTITIONS, Fuzz
from tests.integration.flow import Flow
from tests.testbed.cluster import Cluster
from tests.testbed.kafka import Message

MESSAGES = 3000
LONG = 700_000  # bytes: more than a socket holds


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_messages(flow: Flow, cluster: Cluster, topic: MakeTopic, name: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"python -m tests.fuzz --seed {seed} --count {MESSAGES} --format {name}")
    fuzz, source = Fuzz(flow, cluster, seed), topic(PARTITIONS)
    ledger = fuzz.send(name, source, MESSAGES)
    life = fuzz.life()
    fuzz.read(source, print)
    accounts = [account(flow, name, target, ledger) for _, target in fuzz.relations(name)]
    print("\n".join(line for line, _ in accounts))
    assert [complaint for _, found in accounts for complaint in found] == []
    assert list(fuzz.died(life, source)) == []


# A type's input function answers with any SQLSTATE it likes, and some with that of a wrong set-up.
WRONG_VALUES = {
    "regclass": ("no_such_table", "42P01"),
    "regproc": ("no_such_function", "42883"),
    "regtype": ("no_such_type", "42704"),
    "regrole": ("no_such_role", "42704"),
    "tsquery": ("a & & b", "42601"),
    "tsvector": ("'a", "42601"),
    "jsonpath": ("$.", "42601"),
}


@pytest.mark.parametrize("type", WRONG_VALUES)
@pytest.mark.parametrize("way", ["copy", "insert", "text"])
def test_a_value_that_its_type_refuses_as_if_the_set_up_were_wrong(
    flow: Flow, topic: MakeTopic, type: str, way: str
) -> None:
    """It is set aside, and its neighbours get in; by both ways of json, and as text."""
    value, sqlstate = WRONG_VALUES[type]
    flow.admin.execute(f"CREATE TABLE t (n int, v {type}, d int DEFAULT 0)")
    columns: Message = f"1\t{value}\t0" if way == "text" else f'{{"n": 1, "v": "{value}", "d": 0}}'
    good = (
        ["0\t\\N\t0", "2\t\\N\t0"] if way == "text" else ['{"n": 0, "v": null, "d": 0}', '{"n": 2, "v": null, "d": 0}']
    )
    if way == "insert":
        good[1] = '{"n": 2}'  # what lacks a field takes a default, which COPY would not give
    source = topic()
    flow.kafka.produce(source, [good[0], columns, good[1]])
    flow.begin(source, "t", format="text" if way == "text" else "json")
    flow.read(source)
    assert flow.column("SELECT n FROM t") == [0, 2]
    assert flow.aside(source) == [(0, 1, sqlstate)]


def test_a_trigger_whose_table_is_missing_is_no_message_s_fault(flow: Flow, topic: MakeTopic) -> None:
    """The same SQLSTATE as of a wrong value: but it is the set-up that waits to be mended."""
    flow.admin.execute(
        """CREATE TABLE t (n int);
           CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN INSERT INTO noted VALUES (NEW.n); RETURN NEW; END $$;
           CREATE TRIGGER note BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()"""
    )
    source = topic()
    flow.kafka.produce(source, ['{"n": 1}'])
    flow.begin(source, "t", format="json")
    flow.wait_state(source, "t", "failing")
    flow.admin.execute("CREATE TABLE noted (n int)")
    flow.read(source)
    assert flow.column("SELECT n FROM noted") == [1]
    assert flow.aside(source) == []


@pytest.mark.parametrize("format", ["text", "csv", "json"])
def test_an_error_that_is_longer_than_a_socket_holds(flow: Flow, topic: MakeTopic, format: str) -> None:
    """It quotes the value. Whoever writes on without listening waits for a server that waits for being heard."""
    flow.admin.execute("CREATE TABLE t (n int, word text)")
    tail = "w" * LONG
    row = {"text": "%s\t%s", "csv": "%s\t%s", "json": '{"n": "%s", "word": "%s"}'}[format]
    source = topic()
    flow.kafka.produce(source, [row % (1, "good"), row % (tail, "bad"), *(row % (n, tail) for n in (2, 3, 4))])
    flow.begin(source, "t", format=format)
    flow.read(source)
    assert flow.column("SELECT n FROM t") == [1, 2, 3, 4]
    assert flow.aside(source) == [(0, 1, "22P02")]


def test_a_trigger_that_says_much(flow: Flow, topic: MakeTopic) -> None:
    """A notice for each row, even where the trigger sees to it that it is sent."""
    flow.admin.execute(
        """CREATE TABLE t (n int);
           CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql SET client_min_messages = notice AS
               $$ BEGIN RAISE NOTICE 'row % is here%', NEW.n, repeat('!', 100); RETURN NEW; END $$;
           CREATE TRIGGER tell BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tell()"""
    )
    source = topic()
    flow.kafka.produce(source, (f"{n}" for n in range(200_000)))
    flow.begin(source, "t", format="text", batchsize=200_000)
    flow.read(source)
    assert flow.value("SELECT count(*) FROM t") == 200_000

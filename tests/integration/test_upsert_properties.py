"""A batch of rows by their keys does what PostgreSQL does when it is given each message alone."""

from __future__ import annotations

import json
from typing import NamedTuple

from confluent_kafka import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.test_values import Connection, decoded, land, message

on_a_server = settings(
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

KEYS = {
    "int": ["1", '"1"', "2", "3", '"x"'],
    "numeric": ["1", "1.0", '"1e0"', "2"],
    "text": ['"a"', '"b"', '"\\u0061"', '"c d"'],
    "citext": ['"a"', '"A"', '"b"'],
}
SETUP = """
CREATE EXTENSION citext;
CREATE FUNCTION applied(document json, place int, keys text[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    present text[] := (SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
                       WHERE attrelid = 'expected'::regclass AND attnum > 0
                         AND (attname = 'kafka_offset' OR attname IN (SELECT json_object_keys(document))));
    columns text := (SELECT string_agg(quote_ident(p), ', ') FROM unnest(present) p);
    given text := format('(SELECT %s FROM jsonb_populate_record(NULL::expected, $1 || %L))',
                         columns, jsonb_build_object('kafka_offset', place));
    same text := (SELECT string_agg(format('e.%1$I = g.%1$I', k), ' AND ') FROM unnest(keys) k);
    changed text := (SELECT string_agg(format('%1$I = g.%1$I', p), ', ') FROM unnest(present) p WHERE p <> ALL (keys));
    found int := 0;
BEGIN
    IF keys <@ present THEN
        EXECUTE format('UPDATE expected e SET %s FROM %s g WHERE %s', changed, given, same) USING document::jsonb;
        GET DIAGNOSTICS found = ROW_COUNT;
    END IF;
    IF found = 0 THEN
        EXECUTE format('INSERT INTO expected (%s) %s', columns, given) USING document::jsonb;
    END IF;
    RETURN true;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN RETURN false;
END $$;
CREATE FUNCTION gone(document json, keys text[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    same text := (SELECT string_agg(format('e.%1$I = g.%1$I', k), ' AND ') FROM unnest(keys) k);
BEGIN
    EXECUTE format('DELETE FROM expected e USING json_populate_record(NULL::expected, $1) g WHERE %s', same)
    USING document;
    RETURN true;
EXCEPTION WHEN data_exception THEN RETURN false;
END $$"""


class Sent(NamedTuple):
    """A message: an object, or the key of the row to delete."""

    document: str
    is_gone: bool


@st.composite
def messages(draw: st.DrawFn, type: str, keys: list[str]) -> list[Sent]:
    """Messages for few keys, some of which no row can be made of."""
    sent = []
    for _ in range(draw(st.integers(1, 12))):
        fields = {"k": draw(st.sampled_from(KEYS[type])), "j": draw(st.sampled_from(["1", "2"]))}
        is_gone = draw(st.integers(0, 5)) == 0
        if is_gone:
            fields = {name: fields[name] for name in keys}
        else:
            for name, values in {"a": ["1", "2", "13", "null"], "b": ['"x"', '"y"', "null"], "c": ["3", '"?"']}.items():
                if draw(st.booleans()):
                    fields[name] = draw(st.sampled_from(values))
            if draw(st.integers(0, 9)) == 0:
                del fields["k"]
        sent.append(Sent("{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}", is_gone))
    return sent


@on_a_server
@given(data=st.data())
def test_a_batch_is_as_its_messages_one_by_one(admin: Connection, data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(sorted(KEYS)))
    keys = data.draw(st.sampled_from([["k"], ["k", "j"]]))
    before, sent = data.draw(messages(type, keys)), data.draw(messages(type, keys))
    create(admin, type, keys)
    refused = [[n for n, one in enumerate(batch) if not apply(admin, n, one, keys)] for batch in (before, sent)]
    aside = []
    for batch in (before, sent):
        landed = land(
            admin,
            decoded(admin, list(map(as_message, range(20), batch)), "json", on_conflict="update", on_null="delete"),
        )
        aside.append([offset for offset, _ in landed.aside])
    assert aside == refused
    expected = admin.execute("SELECT * FROM expected ORDER BY k, j", prepare=False).fetchall()
    assert admin.execute("SELECT * FROM t ORDER BY k, j", prepare=False).fetchall() == expected


def create(admin: Connection, type: str, keys: list[str]) -> None:
    if admin.execute("SELECT to_regtype('citext')").fetchone() == (None,):
        admin.execute(SETUP)
    columns = f"k {type}, j int, a int CHECK (a <> 13), b text NOT NULL DEFAULT 'new', c int NOT NULL, kafka_offset int"
    admin.execute("DROP TABLE IF EXISTS t, expected")
    admin.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY ({', '.join(keys)}))".encode())
    admin.execute("CREATE TABLE expected (LIKE t INCLUDING ALL)")


def apply(admin: Connection, place: int, sent: Sent, keys: list[str]) -> bool:
    if sent.is_gone:
        answer = admin.execute("SELECT gone(%s::json, %s)", [sent.document, keys]).fetchone()
    else:
        answer = admin.execute("SELECT applied(%s::json, %s, %s)", [sent.document, place, keys]).fetchone()
    return answer == (True,)


def as_message(offset: int, sent: Sent) -> Message:
    document = sent.document.encode()
    if not sent.is_gone:
        return message(offset, document)
    key = json.loads(document)
    alone = json.dumps(key["k"]).encode() if len(key) == 1 and offset % 2 else document
    return message(offset, None, key=alone)

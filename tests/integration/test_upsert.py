"""on_conflict: what becomes of a row whose key is there already. A batch has the effect of its messages one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline_kafka.decoders.payload import Misfit
from tests.integration.test_values import Connection, Landed, decoded, land, message, send, table

T = "id int PRIMARY KEY, a int, b text DEFAULT 'new'"


def upsert(admin: Connection, *values: str, format: str = "json", **options: Any) -> Landed:
    """Send messages with on_conflict => 'update'; rows come back sorted."""
    landed = send(admin, values, format, **{"on_conflict": "update", **options})
    return landed._replace(rows=sorted(landed.rows, key=repr))


def test_a_new_key_is_inserted_and_a_known_one_updated(admin: Connection) -> None:
    table(admin, T)
    upsert(admin, '{"id":1,"a":1,"b":"x"}', '{"id":2,"a":2}')
    landed = upsert(admin, '{"id":2,"a":3,"b":"y"}', '{"id":3}')
    assert landed.rows == [(1, 1, "x"), (2, 3, "y"), (3, None, "new")]


def test_absent_columns_are_left_alone_and_null_is_null(admin: Connection) -> None:
    table(admin, T)
    upsert(admin, '{"id":1,"a":1,"b":"x"}')
    assert upsert(admin, '{"id":1,"a":2}').rows == [(1, 2, "x")]
    assert upsert(admin, '{"id":1,"b":null}').rows == [(1, 2, None)]
    assert upsert(admin, '{"id":1}').rows == [(1, 2, None)]


def test_messages_of_one_key_count_one_after_another(admin: Connection) -> None:
    table(admin, T)
    values = ['{"id":1,"a":1}', '{"id":1,"b":"x"}', '{"id":"1","a":2}', '{"id":2,"a":7}', '{"id":1,"a":3,"b":"y"}']
    landed = upsert(admin, *values, '{"id":1,"b":"z"}')
    assert (landed.rows, landed.aside) == ([(1, 3, "z"), (2, 7, "new")], [])


def test_a_row_that_is_there_needs_no_columns_that_a_new_one_would(admin: Connection) -> None:
    table(admin, "id int PRIMARY KEY, a int NOT NULL, b int CHECK (b IS NOT NULL)")
    values = ['{"id":1,"b":2}', '{"id":1,"a":1,"b":1}', '{"id":1,"b":3}', '{"id":1}', '{"id":1,"a":null}']
    landed = upsert(admin, *values)
    assert (landed.rows, landed.aside) == ([(1, 1, 3)], [(0, "23502"), (4, "23502")])


@pytest.mark.parametrize("on_conflict", ["update", "ignore"])
def test_a_message_that_names_no_column_is_a_row_of_defaults(admin: Connection, on_conflict: str) -> None:
    values = ['{"id":1,"a":1}', "{}", '{"other":1}', '{"id":2,"a":2}']
    table(admin, T)
    landed = upsert(admin, *values, on_conflict=on_conflict)
    assert (landed.rows, landed.aside) == ([(1, 1, "new"), (2, 2, "new")], [(1, "23502"), (2, "23502")])
    admin.execute("TRUNCATE t; ALTER TABLE t ALTER id SET DEFAULT 7")
    landed = upsert(admin, *values, on_conflict=on_conflict)
    assert (landed.rows, landed.aside) == ([(1, 1, "new"), (2, 2, "new"), (7, None, "new")], [])


def test_a_bad_message_takes_no_other_of_its_key_along(admin: Connection) -> None:
    table(admin, "id int PRIMARY KEY, a int CHECK (a > 0), b text")
    values = ['{"id":1,"a":1,"b":"x"}', '{"id":1,"a":-1,"b":"y"}', '{"id":1,"a":"two"}', '{"id":1,"a":3}', '{"id":']
    landed = upsert(admin, *values)
    assert (landed.rows, landed.aside) == ([(1, 3, "x")], [(1, "23514"), (2, "22P02"), (4, "22P02")])


def test_ignore_keeps_the_first(admin: Connection) -> None:
    table(admin, T)
    values = ['{"id":1,"a":1}', '{"id":1,"a":2,"b":"x"}', '[{"id":2},{"id":2,"a":3}]', '{"id":1,"a":"x"}']
    landed = upsert(admin, *values, on_conflict="ignore")
    assert landed == ([(1, 1, "new"), (2, None, "new")], [(3, "22P02")], 2)
    assert upsert(admin, '{"id":1,"a":7}', '{"id":3,"a":7}', on_conflict="ignore").written == 1


def test_another_unique_constraint_is_none_of_its_business(admin: Connection) -> None:
    table(admin, "id int PRIMARY KEY, a int UNIQUE")
    values = ['{"id":1,"a":1}', '{"id":2,"a":1}', '{"id":1,"a":2}']
    for option in ("ignore", "update"):
        assert upsert(admin, *values, on_conflict=option).aside == [(1, "23505")]
        admin.execute("TRUNCATE t")


def test_a_named_constraint_or_unique_index_with_several_columns(admin: Connection) -> None:
    table(admin, 'id serial PRIMARY KEY, "x y" text, k int DEFAULT 5, v int, CONSTRAINT pair UNIQUE (k, "x y")')
    values = ['{"x y":"a","v":1}', '{"x y":"a","k":5,"v":2}', '{"x y":"a","k":6,"v":3}', '{"x y":"a","v":4}']
    assert upsert(admin, *values, conflict_key="pair").rows[0][1:] == ("a", 5, 4)
    admin.execute("CREATE UNIQUE INDEX values ON t (v) INCLUDE (k)")
    landed = upsert(admin, '{"v":3,"x y":"b"}', '{"v":9,"x y":"b"}', conflict_key="values")
    assert sorted(row[1:] for row in landed.rows) == [("a", 5, 4), ("b", 5, 9), ("b", 6, 3)]


def test_a_table_that_is_all_key(admin: Connection) -> None:
    table(admin, "a int, b int, PRIMARY KEY (a, b)")
    landed = upsert(admin, '{"a":1,"b":1}', '{"a":1,"b":2}', '{"a":1,"b":1}', '{"a":1}')
    assert (landed.rows, landed.aside) == ([(1, 1), (1, 2)], [(3, "23502")])


def test_keys_that_are_null_are_never_equal(admin: Connection) -> None:
    table(admin, "k int UNIQUE, v int")
    landed = upsert(admin, '{"k":null,"v":1}', '{"k":null,"v":2}', '{"v":3}', conflict_key="t_k_key")
    assert landed.rows == [(None, 1), (None, 2), (None, 3)]


@pytest.mark.parametrize(
    ("type", "first", "second"),
    [
        ("numeric", "1", "1.00"),
        ("timestamptz", '"2024-01-01 00:00Z"', '"2024-01-01 01:00+01"'),
        ("char(3)", '"a"', '"a "'),
        ("citext", '"Key"', '"kEY"'),
        ("text COLLATE sloppy", '"Key"', '"kEY"'),
        ("uuid", '"00000000-0000-0000-0000-00000000000A"', '"0000000000000000000000000000000a"'),
        ("code", '"abc"', '"abc"'),
        ("int[]", "[1,2]", '"{1, 2}"'),
    ],
)
def test_the_server_says_which_keys_are_equal(admin: Connection, type: str, first: str, second: str) -> None:
    admin.execute("CREATE EXTENSION citext; CREATE DOMAIN code AS varchar(3) CHECK (VALUE <> 'no')")
    admin.execute("CREATE COLLATION sloppy (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    table(admin, f"k {type} PRIMARY KEY, a int, b int")
    values = [f'{{"k":{first},"a":1,"b":1}}', f'{{"k":{second},"a":2}}', f'{{"k":{first},"b":3}}']
    landed = upsert(admin, *values)
    assert ([row[1:] for row in landed.rows], landed.aside) == ([(2, 3)], [])


def test_a_partitioned_table(admin: Connection) -> None:
    admin.execute("""
        CREATE TABLE t (id int, part int, a int, b int DEFAULT 7, PRIMARY KEY (part, id)) PARTITION BY LIST (part);
        CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);
        CREATE TABLE t2 (a int, b int DEFAULT 8, part int NOT NULL, id int NOT NULL);
        ALTER TABLE t ATTACH PARTITION t2 FOR VALUES IN (2)""")
    values = [f'{{"id":1,"part":{part},"a":{part}}}' for part in (1, 2, 3, 1)] + ['{"id":1,"part":2,"b":5}']
    landed = upsert(admin, *values)
    assert (landed.rows, landed.aside) == ([(1, 1, 1, 7), (1, 2, 2, 5)], [(2, "23514")])


def test_tables_that_inherit_are_left_alone(admin: Connection) -> None:
    table(admin, T)
    admin.execute("CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (1, 5, 'child')")
    landed = upsert(admin, '{"id":1,"a":1}', '{"id":1,"a":2}')
    assert landed.rows == [(1, 2, "new"), (1, 5, "child")]


def test_columns_about_the_message_are_set_with_each(admin: Connection) -> None:
    table(admin, "id int PRIMARY KEY, a int, kafka_offset bigint, kafka_topic text")
    landed = upsert(admin, '{"id":1,"a":1}', '{"id":2}', '{"id":1}')
    assert landed.rows == [(1, 1, 2, "events"), (2, None, 1, "events")]


@pytest.mark.parametrize(
    ("format", "type", "bad", "aside"),
    [
        ("json", "jsonb", b"{", "22P02"),
        ("json", "text", b"\xff", "22021"),
        ("raw", "text", b"\0", "22021"),
        ("raw", "bytea", None, None),
    ],
)
def test_whole_messages_by_their_kafka_keys(
    admin: Connection, format: str, type: str, bad: bytes | None, aside: str | None
) -> None:
    table(admin, f"kafka_key text PRIMARY KEY, body {type}, kafka_offset int")
    values = [b'"1"', b'{"2": "\\\\"}', b'[3, "\\""]', bad]
    sent = [message(n, value, key=b"abac"[n : n + 1]) for n, value in enumerate(values)]
    landed = land(admin, decoded(admin, sent, format, on_conflict="update"))
    body: Callable[[bytes], object] = json.loads if type == "jsonb" else bytes.decode if type == "text" else bytes
    assert sorted(landed.rows) == [("a", body(values[2] or b""), 2), ("b", body(values[1] or b""), 1)]
    assert landed.aside == ([(3, aside)] if aside else [])


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ("id int", {}, "has no primary key that on_conflict can go by"),
        ("id int PRIMARY KEY DEFERRABLE", {}, "has no primary key"),
        ("id int PRIMARY KEY", {"conflict_key": "nope"}, 'no unique constraint "nope"'),
        ("id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int", {}, 'a column that no message can name: "id"'),
    ],
)
def test_a_relation_that_lost_its_key_is_a_misfit(
    admin: Connection, columns: str, options: dict[str, str], why: str
) -> None:
    table(admin, columns)
    with pytest.raises(Misfit, match=why):
        upsert(admin, "{}", **options)

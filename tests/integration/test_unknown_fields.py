"""unknown_fields: what becomes of JSON fields that are no column."""

from __future__ import annotations

import json

import pytest

from pipeline_kafka.decoders.payload import Misfit
from tests.integration.test_values import Connection, decoded, message, messages, send, table

T = "id int, name text, made int GENERATED ALWAYS AS (id * 2) STORED, kafka_offset int"


def test_ignored(admin: Connection) -> None:
    table(admin, T)
    assert send(admin, ['{"id":1,"x":2}', '[{"x":{"id":3}}]']).rows == [(1, None, 2, 0), (None, None, None, 1)]


def test_error_sets_aside_and_names_them(admin: Connection) -> None:
    table(admin, T)
    values = ['{"id":1,"x":2}', '{"id":2}', '[{"id":3},{"x":3,"id":4,"y":5}]', '{"ID":6}', '{"id":7}']
    batch = decoded(admin, messages(values), "json", unknown_fields="error")
    assert [(reject.message.offset(), reject.sqlstate, reject.error) for reject in batch.rejects] == [
        (0, "2203E", """field "x" is no column of public.t (unknown_fields => 'error')"""),
        (2, "2203E", """fields "x", "y" are no column of public.t (unknown_fields => 'error')"""),
        (3, "2203E", """field "ID" is no column of public.t (unknown_fields => 'error')"""),
    ]
    assert [row[0] for row in send(admin, values, unknown_fields="error").rows] == [2, 7]


@pytest.mark.parametrize("values", [["{}"], ["{}", "[{}]"]])
def test_columns_that_no_field_fills_are_known_all_the_same(admin: Connection, values: list[str]) -> None:
    table(admin, T)
    fields = '"id":1,"made":9,"kafka_offset":9'
    landed = send(admin, [value.replace("{", "{" + fields) for value in values], unknown_fields="error")
    assert landed.rows == [(1, None, 2, n) for n in range(len(values))]


def test_a_column_takes_the_rest(admin: Connection) -> None:
    table(admin, "id int, rest jsonb DEFAULT '{}', name text")
    values = [
        '{"id":1,"x":1.50,"y z":[null,{"a":"\\u00e9\\n"}],"name":"n"}',
        '{"id":2}',
        '[{"id":3,"rest":{"x":1}},{"q\\"\\u0041":"","x":1,"x":2}]',
        r'{"x":"\u0000"}',
        '{"x":"\\ud800"}',
    ]
    landed = send(admin, values, unknown_fields="rest")
    assert landed.rows == [
        (1, {"x": 1.5, "y z": [None, {"a": "é\n"}]}, "n"),
        (2, None, None),
        (3, {"rest": {"x": 1}}, None),
        (None, {'q"A': "", "x": 2}, None),
    ]
    assert landed.aside == [(3, "22P05"), (4, "22P02")]
    assert admin.execute("SELECT rest->>'x' FROM t WHERE id = 1").fetchone() == ("1.50",)


def test_everything_may_be_the_rest(admin: Connection) -> None:
    table(admin, "rest jsonb, kafka_offset int")
    document = {"a": 1, "rest": 2}
    assert send(admin, [json.dumps(document), "{}"], unknown_fields="rest").rows == [(document, 0), (None, 1)]


def test_one_text_column_means_a_field_where_unknown_ones_matter(admin: Connection) -> None:
    table(admin, "name text")
    assert send(admin, ['{"name":"a"}']).rows == [('{"name":"a"}',)]
    landed = send(admin, ['{"name":"b"}', '"c"', '{"x":1}'], unknown_fields="error")
    assert (landed.rows[1:], landed.aside) == ([("b",)], [(1, "22P02"), (2, "2203E")])


def test_an_update_leaves_the_rest_alone_where_there_is_none(admin: Connection) -> None:
    table(admin, "id int PRIMARY KEY, a int, rest jsonb")
    values = ['{"id":1,"x":1}', '{"id":1,"a":2}', '{"id":2,"x":3}', '{"id":2,"y":4}']
    landed = send(admin, values, unknown_fields="rest", on_conflict="update")
    assert sorted(landed.rows) == [(1, 2, {"x": 1}), (2, None, {"y": 4})]


@pytest.mark.parametrize(
    "columns", ["id int", "id int, rest json", "id int, rest jsonb GENERATED ALWAYS AS ('{}') STORED"]
)
def test_a_relation_that_lost_the_column_is_a_misfit(admin: Connection, columns: str) -> None:
    table(admin, columns)
    with pytest.raises(Misfit, match='has no jsonb column "rest" for unknown_fields'):
        decoded(admin, [message(0, b"{}")], "json", unknown_fields="rest")

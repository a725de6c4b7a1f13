"""The fast way of json: what it cuts out, what it leaves to the reference, and how these stay in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Message

from pipeline_kafka.decoders import decode
from pipeline_kafka.decoders.copying import CopyPayload
from pipeline_kafka.decoders.payload import Decoded, Payload
from pipeline_kafka.decoders.rows import Rows
from pipeline_kafka.decoders.series import Series
from pipeline_kafka.model import Relation
from tests.models import consumer, relation

TEXTS = relation(a="text", b="text")


def decoded(values: Sequence[bytes], target: Relation = TEXTS) -> Decoded:
    return decode(consumer("json"), target, [Message(offset=n, value=value) for n, value in enumerate(values)])


def lines(payload: Payload) -> Sequence[bytes]:
    assert isinstance(payload, CopyPayload)
    return payload._fragments


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b'{"a":"x","b":"y"}', b"x\ty"),
        (b'{"a":"null","b":"null"}', b"null\tnull"),
        (b'{"a":null,"b":null}', b"\\N\t\\N"),
        (b'{"a":null,"b":"null"}', b"\\N\tnull"),
        (b'{"b":"only"}', b"\\N\tonly"),
        (b'{"a":"","b":" "}', b"\t "),
        (b'{"a":1.50,"b":true}', b"1.50\ttrue"),
        (b'{"b":"second","a":"first","c":"no column"}', b"first\tsecond"),
        (b'{"a":{"k":"v"},"b":"["}', b'{"k":"v"}\t['),
        (b'{"a":"{","b":["x", null]}', b'{\t["x", null]'),
        (b'{"a":"\\"","b":"\\\\N"}', b'"\t\\\\N'),
        (b'{"a":"\\t\\n\\r\\b\\f\\/","b":"\\u0009\\u005c\\u0001\\u00e9"}', b"\\t\\n\\r\\b\\f/\t\\\t\\\\\\x01\xc3\xa9"),
        (b'{"a":"\\\\u0041\\ud83d\\ude00","b":"\\\\\\""}', b'\\\\u0041\xf0\x9f\x98\x80\t\\\\"'),
        (b'{"a":{"k":"\\n\\u0041"},\n"b":["x",\t\r\n1]}', b'{"k":"\\\\n\\\\u0041"}\t["x",\\\t\\r\\n1]'),
        ('{"a":"é\u2028\x7f","b":"日本"}'.encode(), "é\u2028\x7f\t日本".encode()),
    ],
)
@pytest.mark.parametrize("plain", [1, 9])
def test_a_line_holds_the_text_of_each_token(value: bytes, line: bytes, plain: int) -> None:
    batch = decoded([b'{"a":"x","b":"y"}'] * plain + [value, value])
    assert lines(batch.payload) == [b"x\ty"] * plain + [line, line]
    assert batch.rejects == []


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b'{"a":"x","b":"y"}', b'"x"\ty'),
        (b'{"a":{"k": "v"},"b":"y"}', b'{"k": "v"}\ty'),
        (b'{"a":null,"b":null}', b"\\N\t\\N"),
        (b'{"a":"null","b":"null"}', b'"null"\tnull'),
        (b'{"a":["\\n\\u0041"],"b":"y"}', b'["\\\\n\\\\u0041"]\ty'),
        (b'{"a":"\\/\\u0041\\u0001\\t","b":"y"}', b'"/A\\\\u0001\\\\t"\ty'),
        (b'{"a":{"k":\n\t1},"b":"y"}', b'{"k":\\n\\\t1}\ty'),
    ],
)
@pytest.mark.parametrize("type", ["json", "jsonb"])
def test_json_stays_json(value: bytes, line: bytes, type: str) -> None:
    batch = decoded([b'{"a":1,"b":2}', value, value], relation(a=type, b="text"))
    assert lines(batch.payload) == [b"1\t2", line, line]


def test_columns_that_nobody_names_are_left_out() -> None:
    payload = decoded([b'{"b":1}', b'{"b":2,"a":null}']).payload
    assert lines(payload) == [b"1", b"2"]
    assert isinstance(payload, CopyPayload)
    assert payload.statement.startswith(b'COPY public.t ("b") ')


def test_what_is_no_row_is_set_aside_and_the_rest_stays_fast() -> None:
    values = [b'{"a":1}'] * 300
    values[7], values[100], values[299] = b'{"a":1', b'{"a":"\xff"}', b'{"a":"\\u0000"}'
    batch = decoded(values)
    assert [(reject.message.offset(), reject.sqlstate) for reject in batch.rejects] == [
        (7, "22P02"), (100, "22021"), (299, "22P05")
    ]  # fmt: skip
    assert len(lines(batch.payload)) == 297


def test_an_escaped_backslash_before_u0000_is_text() -> None:
    assert decoded([b'{"a":"\\\\u0000"}', b'{"a":"\\\\\\\\u0000"}']).rejects == []
    assert len(decoded([b'{"a":"\\\\\\u0000"}', b'{"\\u0000":1}', b'[{"x":["\\u0000"]}]']).rejects) == 3


def kinds(payload: Payload) -> list[tuple[type, int]]:
    return [(type(part), len(part)) for part in (payload._parts if isinstance(payload, Series) else [payload])]


def test_the_reference_takes_its_messages_where_they_stand() -> None:
    one, many = b'{"a":1}', b'[{"a":1},{"a":2}]'
    assert kinds(decoded([one] * 200).payload) == [(CopyPayload, 200)]
    assert kinds(decoded([one] * 200 + [many] + [one] * 200).payload) == [
        (CopyPayload, 200), (Rows, 1), (CopyPayload, 200)
    ]  # fmt: skip
    assert kinds(decoded([one] * 99 + [many] + [one] * 99).payload) == [(Rows, 199)]
    assert kinds(decoded([many, one] * 50 + [one] * 200).payload) == [(Rows, 99), (CopyPayload, 201)]


def test_shapes_matter_where_there_are_defaults() -> None:
    column, other = TEXTS.columns
    target = replace(TEXTS, columns=(replace(column, default="now()"), other))
    named, absent = b'{"a":1,"b":1}', b'{"b":1}'
    assert kinds(decoded([named] * 150 + [absent] * 150, target).payload) == [(CopyPayload, 150)] * 2
    assert kinds(decoded([named, absent] * 150, target).payload) == [(Rows, 300)]


def test_arrays_and_composites_are_the_references_unless_null() -> None:
    target = relation(a="integer[]", b="text")
    assert kinds(decoded([b'{"a":null,"b":1}', b'{"b":1}'] * 100, target).payload) == [(CopyPayload, 200)]
    assert kinds(decoded([b'{"a":[1],"b":1}', b'{"b":1}'] * 100, target).payload) == [(Rows, 200)]


@pytest.mark.parametrize("value", [b'{"a":"\xc3\xa9"}', b'{"a":"\\u00e9"}', b'{"a":1,"x":"\\u00e9"}'])
def test_the_server_says_what_a_database_of_another_encoding_can_hold(value: bytes) -> None:
    target = replace(TEXTS, encoding="LATIN1")
    assert kinds(decoded([value], target).payload) == [(Rows, 1)]
    assert kinds(decoded([b'{"a":"x"}'], target).payload) == [(CopyPayload, 1)]


@pytest.mark.parametrize("target", [replace(TEXTS, takes_copy=False), relation(**{'a"b': "text", "c": "text"})])
def test_relations_that_copy_does_not_suit_take_the_reference(target: Relation) -> None:
    assert kinds(decoded([b'{"a":"x"}'], target).payload) == [(Rows, 1)]


def test_large_batches_are_cut_in_pieces_and_loaded_in_one() -> None:
    values = [b'{"a":"%b","b":%d}' % (b"x" * 100_000, n) for n in range(50)]
    assert [line[-3:].split(b"\t")[1] for line in lines(decoded(values).payload)] == [b"%d" % n for n in range(50)]

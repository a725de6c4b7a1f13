"""The fast way of json: what it cuts out, and what it leaves to the reference."""

from __future__ import annotations

import pytest

from pipeline_kafka.decoders import fast
from pipeline_kafka.model import Column, Relation

RELATION = Relation(
    1,
    "public.t",
    "r",
    tuple(Column(name, "text", "text", "NULL", False, "scalar") for name in ("a", "b")),
    "1",
)


def cut(*values: bytes) -> list[bytes] | None:
    """The lines of COPY data, None where the batch is left to the reference."""
    known = fast.layout(RELATION)
    assert known
    return fast._cut(known, values)[1]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b'{"a":"x","b":"y"}', b"x\ty"),
        (b'{"a":"null","b":"null"}', b"null\tnull"),
        (b'{"a":null,"b":null}', b"\\N\t\\N"),
        (b'{"a":null,"b":"null"}', b"\\N\tnull"),
        (b'{"a":"","b":" "}', b"\t "),
        (b'{"a":1.50,"b":true}', b"1.50\ttrue"),
        (b'{"b":"second","a":"first","c":"no column"}', b"first\tsecond"),
        (b'{"a":{"k":"v"},"b":"["}', b'{"k":"v"}\t['),
        (b'{"a":"{","b":["x", null]}', b'{\t["x", null]'),
    ],
)
def test_a_line_holds_the_text_of_each_token(value: bytes, line: bytes) -> None:
    assert cut(value, value) == [line, line]


@pytest.mark.parametrize(
    "value",
    [b'{"a":"x"}', b'{"a":"\\n","b":"y"}', b'{"a":{"k":\t1},"b":"y"}', b'{"a":"\xff","b":"y"}', b"[1]", b'{"a":"x"'],
)
def test_what_is_not_plain_is_left_to_the_reference(value: bytes) -> None:
    assert cut(b'{"a":"x","b":"y"}', value) is None

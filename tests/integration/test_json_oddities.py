"""What JSON may hold, and what becomes of it: the table in docs/sql.md, by COPY and by INSERT."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.integration.test_values import Connection, send, table

T = (
    "n numeric, i int, f float8, s text, b boolean, c char(2), v varchar(2), x bit(2), a int[], p pair, j json, "
    'k jsonb, "odd" int DEFAULT 7'
)
DEEP = b'{"k":' + b"[" * 5000 + b"]" * 5000 + b"}"

LANDS: list[tuple[str, str, Any]] = [
    ('{"i":1,"i":2}', "i", 2),
    ('{"i":1,"i":null}', "i", None),
    (r'{"\u0069":1}', "i", 1),
    (r'{"s":"\n\u00e9\ud83d\ude00\/"}', "s", "\né😀/"),
    (r'{"j":"\u00e9\n"}', "j::text", r'"é\n"'),
    (r'{"k":"\u00e9\n"}', "k::text", r'"é\n"'),
    (r'{"j":["\u00e9\n"]}', "j::text", r'["\u00e9\n"]'),
    (r'{"s":["\u00e9\n", 1]}', "s", r'["\u00e9\n", 1]'),
    ('{"n":123456789012345678901234567890}', "n", Decimal(123456789012345678901234567890)),
    ('{"n":1e400}', "n::text", "1" + "0" * 400),
    ('{"n":0.1000000000000000055}', "n", Decimal("0.1000000000000000055")),
    ('{"k":0.1000000000000000055}', "k::text", "0.1000000000000000055"),
    ('{"s":0.1000000000000000055}', "s", "0.1000000000000000055"),
    ('{"f":0.1000000000000000055}', "f", 0.1),
    ('{"i":"12"}', "i", 12),
    ('{"s":1.50}', "s", "1.50"),
    ('{"s":true}', "s", "true"),
    ('{"s":{"a": 1}}', "s", '{"a": 1}'),
    ('{"s":""}', "s", ""),
    ('{"s":"null"}', "s", "null"),
    ('{"s":null}', "s", None),
    ('{"k":null}', "k", None),
    ('{"n":"NaN"}', "n::text", "NaN"),
    ('{"f":"-Infinity"}', "f", float("-inf")),
    *((f'{{"b":{text}}}', "b", True) for text in ("true", '"yes"', '"t"', "1")),
    ('{"a":"{1,2}"}', "a", [1, 2]),
    ('{"a":[1,null]}', "a", [1, None]),
    ('{"p":"(1,y)"}', "p::text", "(1,y)"),
    ('{"p":{"y":"z"}}', "p::text", "(,z)"),
    ("{}", "odd", 7),
    ('{"odd":null}', "odd", None),
    ('{"Odd":1}', "odd", 7),
]
ASIDE: list[tuple[str | bytes, str]] = [
    (r'{"s":"\u0000"}', "22P05"),
    (r'{"k":["\u0000"]}', "22P05"),
    (r'{"unknown":{"\u0000":1}}', "22P05"),
    (r'{"s":"\ud800"}', "22P02"),
    (r'{"s":"\ude00\ud83d"}', "22P02"),
    (r'{"unknown":"\ud800x"}', "22P02"),
    ('{"i":123456789012345678901234567890}', "22003"),
    ('{"f":1e400}', "22003"),
    ('{"i":1.0}', "22P02"),
    ('{"i":1e2}', "22P02"),
    ('{"n":NaN}', "22P02"),
    ('{"n":-Infinity}', "22P02"),
    ('{"i":[1]}', "22P02"),
    ('{"a":1}', "22P02"),
    ('{"c":"abc"}', "22001"),
    ('{"v":"abc"}', "22001"),
    ('{"x":"101"}', "22026"),
    (DEEP, "54001"),
    (b'\xef\xbb\xbf{"i":1}', "22P02"),
    ('{"i":1}'.encode("utf-16"), "22021"),
    ('{"i":1}'.encode("utf-16-le"), "22021"),
    ('{"i":1}'.encode("utf-32"), "22021"),
    ('{"s":"é"}'.encode("latin-1"), "22021"),
    (b'{"s":"\xed\xa0\x80"}', "22021"),
    (b'{"unknown":"\xff"}', "22021"),
    (b'{"s":"a\0b"}', "22021"),
    ('{"i":1', "22P02"),
    ('{"i":1}{"i":2}', "22P02"),
    ('{"i":1,}', "22P02"),
    ('{"i":1} // one', "22P02"),
    ("{'i':1}", "22P02"),
    ('{"s":"\t"}', "22P02"),
    ("", "22P02"),
    ('"x"', "22P02"),
    ("3", "22P02"),
    ("null", "22P02"),
    ('[{"i":1},3]', "22P02"),
]


@pytest.mark.parametrize("others", [0, 300])
def test_what_lands(admin: Connection, others: int) -> None:
    admin.execute("CREATE TYPE pair AS (x int, y text)")
    table(admin, T + ", number serial")
    plain = ['{"i":-1,"odd":1}'] * others
    for number, (value, look, expected) in enumerate(LANDS):
        admin.execute("TRUNCATE t")
        landed = send(admin, [*plain, value, *plain])
        assert landed.aside == [], value
        found = admin.execute(f"SELECT {look} FROM t WHERE i IS DISTINCT FROM -1".encode()).fetchall()
        assert found == [(expected,)], (number, value)


@pytest.mark.parametrize("others", [0, 300])
def test_what_is_set_aside(admin: Connection, others: int) -> None:
    admin.execute("CREATE TYPE pair AS (x int, y text)")
    table(admin, T)
    plain = ['{"i":-1,"odd":1}'] * others
    values = [value for value, _ in ASIDE]
    landed = send(admin, [*plain, *values, *plain])
    assert landed.aside == [(others + n, sqlstate) for n, (_, sqlstate) in enumerate(ASIDE)]
    assert len(landed.rows) == 2 * others


def test_a_single_document_may_be_anything(admin: Connection) -> None:
    values = [r'"\u0000"', "3", "null", '"x"', "[1, 2]", '{"a": 1, "a": 2}']
    for type in ("json", "text"):
        admin.execute("DROP TABLE IF EXISTS t")
        table(admin, f"doc {type}")
        send(admin, values)
        assert admin.execute("SELECT doc::text FROM t", prepare=False).fetchall() == [(value,) for value in values]

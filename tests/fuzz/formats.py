"""The formats under test: the relations that their messages go into, and how a good message is made.

In: a random generator and a number. Out: a message's value, and what identifies its row.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PLACE = "kafka_partition int, kafka_offset bigint"
ROW = f"id bigint, name text, amount numeric, at timestamptz, {PLACE}"
IDENTITY = "id || ' ' || name"
WORDS = ["tea", "Käse", "a,b", 'say "no"', "it's", "back\\slash", "tab\tbed", "two\nlines", "😀", "{}", "", "\\."]

# One column of each kind, all of them filled by a string or number that is good for it.
TYPES: Mapping[str, tuple[str, Any]] = {
    "c_smallint": ("smallint", 7),
    "c_int": ("int", -70000),
    "c_numeric": ("numeric(10,2)", 12.25),
    "c_real": ("real", 1.5),
    "c_double": ("double precision", 1e300),
    "c_boolean": ("boolean", True),
    "c_varchar": ("varchar(8)", "eight"),
    "c_char": ("char(3)", "abc"),
    "c_name": ("name", "a name"),
    "c_bytea": ("bytea", "\\xdeadbeef"),
    "c_date": ("date", "2026-02-28"),
    "c_time": ("time", "23:59:59.5"),
    "c_timetz": ("timetz", "12:00+02"),
    "c_timestamp": ("timestamp", "2026-01-01 00:00:00"),
    "c_interval": ("interval", "1 year 2 days"),
    "c_uuid": ("uuid", "0f2c0e6c-6d3c-4b0c-9d3e-0b5a3a3b1c2d"),
    "c_inet": ("inet", "10.1.2.3/8"),
    "c_cidr": ("cidr", "10.0.0.0/8"),
    "c_macaddr": ("macaddr", "08:00:2b:01:02:03"),
    "c_json": ("json", {"a": [1, None]}),
    "c_jsonb": ("jsonb", {"b": {"c": "d"}}),
    "c_ints": ("int[]", [1, 2, 3]),
    "c_texts": ("text[]", ["x", None]),
    "c_range": ("int4range", "[1,5)"),
    "c_multirange": ("nummultirange", "{[1,2),[3,4)}"),
    "c_point": ("point", "(1,2)"),
    "c_bit": ("bit(3)", "101"),
    "c_varbit": ("varbit", "1"),
    "c_money": ("money", "$1.00"),
    "c_lsn": ("pg_lsn", "0/1"),
    "c_xid": ("xid8", "17"),
    "c_tsvector": ("tsvector", "'a':1 'b'"),
    "c_tsquery": ("tsquery", "a & b"),
    "c_jsonpath": ("jsonpath", "$.a"),
    "c_xml": ("xml", "<a/>"),
    "c_regclass": ("regclass", "pg_class"),
    "c_regtype": ("regtype", "int4"),
    "c_regproc": ("regproc", "now"),
    "c_mood": ("mood", "glad"),
    "c_positive": ("positive", 3),
    "c_pair": ("pair", {"x": 1, "y": "z"}),
}
SETUP = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (x int, y text);
"""

Make = Callable[[int, random.Random], tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class Target:
    """A relation by its columns; ``identity`` is the SQL of what a good message's row is known by.

    ``text_key`` where its kafka_key is text, so that a key that is none sets the message aside.
    """

    columns: str
    identity: str
    text_key: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """``make`` gives a good message and its row's identity; ``settings`` are consume_begin()'s."""

    make: Make
    targets: Mapping[str, Target]
    settings: Mapping[str, Any] = field(default_factory=dict)


def _row(number: int, rng: random.Random) -> tuple[int, str, str, str]:
    name = " ".join(rng.choices(WORDS, k=rng.randint(1, 3)))
    return number, name, f"{rng.randint(-999, 999)}.{rng.randint(0, 99):02}", "2026-01-02 03:04:05+00"


def _text(number: int, rng: random.Random) -> tuple[bytes, str]:
    row = _row(number, rng)
    escapes = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n"})
    return "\t".join(str(value).translate(escapes) for value in row).encode(), f"{row[0]} {row[1]}"


def _csv(number: int, rng: random.Random) -> tuple[bytes, str]:
    row = _row(number, rng)
    return ",".join('"' + str(value).replace('"', '""') + '"' for value in row).encode(), f"{row[0]} {row[1]}"


def _json(number: int, rng: random.Random) -> tuple[bytes, str]:
    """An object with some of the columns, in any order."""
    row = _row(number, rng)
    names = rng.sample(list(TYPES), k=rng.randint(0, len(TYPES)))
    value = {"id": row[0], "name": row[1], **{name: TYPES[name][1] for name in names}}
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode(), f"{row[0]} {row[1]}"


def _flat(number: int, rng: random.Random) -> tuple[bytes, str]:
    """An object with all columns of a plain relation: what goes by COPY."""
    row = _row(number, rng)
    value = dict(zip(("id", "name", "amount", "at"), row, strict=True))
    return json.dumps(value, ensure_ascii=False).encode(), f"{row[0]} {row[1]}"


def _raw(number: int, rng: random.Random) -> tuple[bytes, str]:
    value = "".join(rng.choices(WORDS, k=3)) + str(number)
    return value.encode(), value


_TOLD = "kafka_key bytea, kafka_headers jsonb, kafka_timestamp timestamptz"
_PLAIN = {"plain": Target(f"{ROW}, {_TOLD}", IDENTITY)}
_MANY = ", ".join(f"{name} {type}" for name, (type, _) in TYPES.items())
_OF_DOCUMENT = "(doc::jsonb->>'id') || ' ' || (doc::jsonb->>'name')"

FORMATS: Mapping[str, Format] = {
    "text": Format(_text, _PLAIN, {"format": "text"}),
    "csv": Format(_csv, _PLAIN, {"format": "csv", "delimiter": ","}),
    "json": Format(
        _json,
        {"many": Target(f"id bigint, name text, {_MANY}, {PLACE}, kafka_key text", IDENTITY, text_key=True)},
        {"format": "json"},
    ),
    "flat": Format(_flat, _PLAIN, {"format": "json"}),
    "document": Format(
        _flat,
        {"jsonb": Target(f"doc jsonb, {PLACE}", _OF_DOCUMENT), "text": Target(f"doc text, {PLACE}", _OF_DOCUMENT)},
        {"format": "json"},
    ),
    "raw": Format(
        _raw,
        {
            "bytea": Target(f"doc bytea, {PLACE}", "convert_from(doc, 'UTF8')"),
            "text": Target(f"doc text, {PLACE}", "doc"),
        },
        {"format": "raw"},
    ),
}

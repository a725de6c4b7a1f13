"""COPY's options for text and csv: null_string, header; messages of several rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.test_values import Connection, decoded, land, message, send, table

T = "id int, name text"
CSV: dict[str, Any] = {"format": "csv", "delimiter": ","}


@pytest.mark.parametrize(
    ("format", "null", "values", "names"),
    [
        ("text", None, ["1\t\\N", "1\t", "1\tNULL"], [None, "", "NULL"]),
        ("text", "", ["1\t\\N", "1\t", "1\tx"], ["N", None, "x"]),
        ("text", "NULL", ["1\tNULL", "1\t\\x4eULL", "1\tnull\n1\tNULL"], [None, "NULL", "null", None]),
        ("csv", None, ["1,", '1,""', "1,NULL"], [None, "", "NULL"]),
        ("csv", "NULL", ["1,", '1,"NULL"', "1,NULL\r\n1,NULL"], ["", "NULL", None, None]),
        ("csv", "it's \\N", ["1,it's \\N", '1,"it\'s \\N"'], [None, "it's \\N"]),
    ],
)
def test_what_stands_for_null(
    admin: Connection, format: str, null: str | None, values: list[str], names: list[str | None]
) -> None:
    table(admin, T)
    landed = send(admin, values, format, delimiter="," if format == "csv" else "\t", null_string=null)
    assert ([name for _, name in landed.rows], landed.aside) == (names, [])


@pytest.mark.parametrize("format", ["text", "csv"])
@pytest.mark.parametrize("null", ["events", "\\N", "k"])
def test_columns_about_the_message_are_not_taken_for_null(admin: Connection, format: str, null: str) -> None:
    table(admin, "kafka_topic text, kafka_key text, kafka_headers jsonb, id text")
    key = null.replace("\\N", "N")
    sent = [message(0, b"1", key=key.encode()), message(1, b"1")]
    landed = land(admin, decoded(admin, sent, format, delimiter=",", null_string=null))
    assert landed.rows == [("events", key, None, "1"), ("events", None, None, "1")]


@pytest.mark.parametrize("numbered", [False, True])
def test_the_header_is_passed_over_in_each_message(admin: Connection, numbered: bool) -> None:
    table(admin, "kafka_offset int, " * numbered + T)
    values = [
        "id,name\n1,a\n2,b\n",
        "whatever\r\n3,c\r\n",
        '"quoted\nname",x\n4,"d\n"',
        "id,name",
        "id,name\n",
        "",
        "id\n5,e\n6",
        'id,"open\n7,f',
        "\\.\n8,g",
        "id\rname\n9,h",
    ]
    landed = send(admin, values, header=True, **CSV)
    rows = [(0, 1, "a"), (0, 2, "b"), (1, 3, "c"), (2, 4, "d\n")]
    assert landed.rows == (rows if numbered else [row[1:] for row in rows])
    assert landed.aside == [(n, "22P04") for n in range(5, 10)]


def test_a_bad_line_behind_headers_is_the_one_set_aside(admin: Connection) -> None:
    table(admin, T)
    values = [f"id,name\n{'x' if n == 70 else n},a\n{n},b" for n in range(100)]
    landed = send(admin, values, header=True, **CSV)
    assert landed.aside == [(70, "22P02")]
    assert len(landed.rows) == 198

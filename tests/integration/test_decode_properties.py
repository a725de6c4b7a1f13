"""Lines land as COPY makes of each message alone, and JSON is what PostgreSQL takes for JSON. Needs a server."""

from __future__ import annotations

from typing import Any

import psycopg
from confluent_kafka import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_kafka.decoders import syntax
from pipeline_kafka.decoders.payload import Refused
from tests.integration.documents import anything
from tests.integration.test_values import Connection, Landed, Rows, decoded, land, messages

on_a_server = settings(
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

field = st.sampled_from(["a", "", '"b\nc"', '"\r"', '"\\"', '"\\\\"', '""""', "é"])
line = (
    st.text(alphabet="ab\t,\"'\\.N\n\r\0é", max_size=9)
    | st.tuples(field, st.just(","), field, st.sampled_from(["", "\n", "\r\n", ","])).map("".join)
).map(str.encode) | st.just(b"1\t,\xff")
STYLES: list[tuple[str, dict[str, Any], str]] = [
    ("text", {}, "FORMAT text"),
    ("text", {"delimiter": ","}, "FORMAT text, DELIMITER ','"),
    ("csv", {"delimiter": ","}, "FORMAT csv"),
    ("csv", {"quote": "'", "escape": "a"}, "FORMAT csv, DELIMITER E'\\t', QUOTE E'\\'', ESCAPE 'a'"),
    ("csv", {"delimiter": ",", "escape": "\\"}, "FORMAT csv, ESCAPE E'\\\\'"),
    ("csv", {"delimiter": "N", "quote": "\\"}, "FORMAT csv, DELIMITER 'N', QUOTE E'\\\\'"),
    ("text", {"null_string": "a"}, "FORMAT text, NULL 'a'"),
    ("csv", {"delimiter": ",", "null_string": "é"}, "FORMAT csv, NULL 'é'"),
    ("csv", {"delimiter": ",", "header": True}, "FORMAT csv, HEADER"),
]


@on_a_server
@given(values=st.lists(line, max_size=7), style=st.sampled_from(STYLES), numbered=st.booleans())
def test_messages_in_one_copy_land_as_each_would_by_itself(
    admin: Connection, values: list[bytes], style: tuple[str, dict[str, Any], str], numbered: bool
) -> None:
    format, characters, options = style
    admin.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({'kafka_offset int, ' * numbered} a text, b text)".encode())

    def sent(batch: list[Message]) -> Landed:
        admin.execute("TRUNCATE t")
        return land(admin, decoded(admin, batch, format, **characters))

    alone = [sent([message]) for message in messages(values)]
    rows = [row for landed in alone for row in landed.rows]
    assert sent(messages(values)) == (rows, [aside for landed in alone for aside in landed.aside], len(rows))
    for offset, (value, landed) in enumerate(zip(values, alone, strict=True)):
        if numbered:
            assert all(row[0] == offset for row in landed.rows)
        elif (bare := copied(admin, options, value)) is not None or "HEADER" not in options:
            compare(value, landed, bare)  # COPY reads the header line, which we only look for the end of


def compare(value: bytes, landed: Landed, bare: Rows | None) -> None:
    """Hold a message's rows to those that COPY makes of it; None where it makes an error."""
    if bare is None:  # we make line ends alike, which COPY asks for
        assert landed.aside or b"\r" in value
    elif landed.aside:  # what COPY drops, or takes for an end, for no line at all, or for a header without one
        assert value.endswith(b"\\") or b"\\." in value or b"\r" in value or not value or value.count(b'"') % 2
    elif value:
        assert landed.rows == bare


def copied(admin: Connection, options: str, value: bytes) -> Rows | None:
    """Return what COPY makes of a message by itself; None where it refuses it."""
    admin.execute("TRUNCATE t")
    try:
        with admin.cursor().copy(f"COPY t FROM STDIN WITH ({options})".encode()) as copy:
            copy.write(value)
    except psycopg.DataError:
        return None
    return admin.execute("SELECT * FROM t", prepare=False).fetchall()


@st.composite
def nearly_json(draw: st.DrawFn) -> str:
    """JSON, with a few characters changed. No surrogates: PostgreSQL's json type leaves those to jsonb."""
    text = draw(anything.filter(lambda text: "\\ud" not in text and "\0" not in text))
    for _ in range(draw(st.integers(0, 3))):
        place, cut = draw(st.integers(0, len(text))), draw(st.integers(0, 1))
        put = draw(st.text(alphabet='{}[]",:\\u0e1 -+.tfn\n\x01\xa0\ufeff', max_size=2))
        text = text[:place] + put + text[place + cut :]
    return text


@on_a_server
@given(texts=st.lists(nearly_json(), max_size=30))
def test_json_is_what_postgresql_takes_for_json(admin: Connection, texts: list[str]) -> None:
    admin.execute(IS_JSON)
    theirs = admin.execute("SELECT is_json(x) FROM unnest(%s::text[]) x", [texts]).fetchall()
    assert [(is_json(text.encode()),) for text in texts] == theirs


IS_JSON = """
CREATE OR REPLACE FUNCTION is_json(x text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    RETURN x::json IS NOT NULL;
EXCEPTION WHEN data_exception THEN RETURN false;
END $$"""


def is_json(value: bytes) -> bool:
    try:
        syntax.document(value)
    except Refused:
        return False
    return True

"""Whatever is sent, what lands is what PostgreSQL would have made of each message alone. Needs a server."""

from __future__ import annotations

import json

import psycopg
from confluent_kafka import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_kafka.decoders import syntax
from pipeline_kafka.decoders.payload import Refused
from tests.integration.test_values import Connection, Landed, Rows, decoded, land, messages

on_a_server = settings(
    database=None,
    deadline=None,
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

string = st.builds(json.dumps, st.text(max_size=6), ensure_ascii=st.booleans())
whole = st.integers(-(10**22), 10**22).map(str) | st.integers(-40000, 40000).map(str)
number = whole | st.decimals(allow_nan=False, allow_infinity=False).map(str) | st.just("1e400")
leaf = string | number | st.sampled_from(["true", "false", "null", '"NaN"', '"infinity"', '"\\ud83d\\ude00"'])


def array_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")


def object_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(string, inner), max_size=3)
    return pairs.map(lambda items: "{" + ",".join(map(":".join, items)) + "}")


anything = st.recursive(leaf, lambda inner: array_of(inner) | object_of(inner), max_leaves=6)

# A type -> a default, and values it is likely to take; now and then it is sent anything at all.
TYPES: dict[str, tuple[str, st.SearchStrategy[str]]] = {
    "smallint": ("7", whole),
    "integer": ("7 % 4", whole),
    "bigint": ("-1", whole),
    "numeric": ("0.10", number),
    "numeric(6,2)": ("1", number),
    "double precision": ("'NaN'", number),
    "text": ("'x%s'", string),
    "varchar(3)": ("''", string),
    "char(4)": ("'c'", string),
    "boolean": ("true", st.sampled_from(["true", "false", '"yes"', '"t"', "1", "0"])),
    "timestamptz": ("'epoch'", st.datetimes().map(lambda at: json.dumps(at.isoformat() + "+05:30"))),
    "date": ("'infinity'", st.dates().map(lambda day: json.dumps(day.isoformat()))),
    "uuid": ("'00000000-0000-0000-0000-000000000000'", st.uuids().map(lambda uuid: json.dumps(str(uuid)))),
    "json": ("'{}'", anything),
    "jsonb": ("'[1.50]'", anything),
    "int[]": ("'{}'", array_of(whole) | st.just('"{1,NULL}"')),
    "bytea": ("'\\x00'", st.binary(max_size=4).map(lambda octets: json.dumps("\\x" + octets.hex())) | string),
    "inet": ("'::1'", st.ip_addresses().map(lambda address: json.dumps(str(address)))),
    "interval": ("'1 day'", st.sampled_from(['"1 mon -2 days"', '"P1Y"', '"25:00:00.5"', '"-1"'])),
    "bit(3)": ("B'101'", st.sampled_from(['"101"', '"1010"', '"x5"'])),
    "int4range": ("'empty'", st.sampled_from(['"[1,5)"', '"(1,"', '"empty"'])),
    "money": ("1", st.sampled_from(["12.345", '"$1,000.00"'])),
    "positive": ("3", whole),
    "mood": ("'glad'", st.sampled_from(['"glad"', '"sad"', '"Sad"'])),
    "pair": ("'(1,a)'", st.sampled_from(['{"x":1}', '{"y":"b","x":null}', '{"X":1}', '"(3,c)"', "{}"])),
}
SETUP = """
CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TYPE pair AS (x int, y varchar(2)); SET bytea_output = hex"""


@st.composite
def tables_and_documents(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Column definitions, and JSON objects that name some of the columns."""
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=2, max_size=5))
    defaults = [draw(st.sampled_from(["", f" DEFAULT {TYPES[type][0]}"])) for type in types]
    columns = [f"C{n} {type} {default}" for n, (type, default) in enumerate(zip(types, defaults, strict=True))]
    values = [TYPES[type][1] | TYPES[type][1] | st.just("null") | anything for type in types]
    documents = []
    for _ in range(draw(st.integers(1, 6))):
        pairs = [f'"c{n}": {draw(value)}' for n, value in enumerate(values) if draw(st.booleans())]
        pairs += draw(st.sampled_from([[], ['"other": {"c0": 1}'], ['"C0": 1']]))
        documents.append("{" + ", ".join(draw(st.permutations(pairs))) + "}")
    return columns, documents


@on_a_server
@given(drawn=tables_and_documents())
def test_json_lands_as_json_populate_record_would_land_it(
    admin: Connection, drawn: tuple[list[str], list[str]]
) -> None:
    columns, documents = drawn
    setup(admin, f"DROP TABLE IF EXISTS t, expected; CREATE TABLE t ({', '.join(columns)})")
    admin.execute("CREATE TABLE expected (LIKE t INCLUDING DEFAULTS)")
    refused = [n for n, document in enumerate(documents) if not populates(admin, document)]

    landed = land(admin, decoded(admin, messages(documents), "json"), "SELECT t::text FROM t")

    assert [offset for offset, _ in landed.aside] == refused
    assert landed.rows == admin.execute("SELECT e::text FROM expected e").fetchall()
    assert landed.written == len(documents) - len(refused)


def setup(admin: Connection, sql: str) -> None:
    if admin.execute("SELECT to_regtype('pair')").fetchone() == (None,):
        admin.execute(SETUP)
    admin.execute(sql.encode())


def populates(admin: Connection, document: str) -> bool:
    """Put a document's own fields into table expected, and leave the others to their defaults."""
    present = [name for name in json.loads(document) if name[0] == "c"]
    insert = f"({', '.join(present)}) SELECT {', '.join(present)} FROM json_populate_record(NULL::t, %s)"
    try:
        if present:
            admin.execute(f"INSERT INTO expected {insert}".encode(), [document])
        else:
            admin.execute("INSERT INTO expected DEFAULT VALUES")
    except (psycopg.DataError, psycopg.IntegrityError):
        return False
    return True


field = st.sampled_from(["a", "", '"b\nc"', '"\r"', '"\\"', '"\\\\"', '""""', "é"])
line = (
    st.text(alphabet="ab\t,\"'\\.N\n\r\0é", max_size=9)
    | st.tuples(field, st.just(","), field, st.sampled_from(["", "\n", "\r\n", ","])).map("".join)
).map(str.encode) | st.just(b"1\t,\xff")
STYLES: list[tuple[str, dict[str, str], str]] = [
    ("text", {}, "FORMAT text"),
    ("text", {"delimiter": ","}, "FORMAT text, DELIMITER ','"),
    ("csv", {"delimiter": ","}, "FORMAT csv"),
    ("csv", {"quote": "'", "escape": "a"}, "FORMAT csv, DELIMITER E'\\t', QUOTE E'\\'', ESCAPE 'a'"),
    ("csv", {"delimiter": ",", "escape": "\\"}, "FORMAT csv, ESCAPE E'\\\\'"),
    ("csv", {"delimiter": "N", "quote": "\\"}, "FORMAT csv, DELIMITER 'N', QUOTE E'\\\\'"),
]


@on_a_server
@given(values=st.lists(line, max_size=7), style=st.sampled_from(STYLES), numbered=st.booleans())
def test_messages_in_one_copy_land_as_each_would_by_itself(
    admin: Connection, values: list[bytes], style: tuple[str, dict[str, str], str], numbered: bool
) -> None:
    format, characters, options = style
    setup(admin, f"DROP TABLE IF EXISTS t; CREATE TABLE t ({'kafka_offset int, ' * numbered} a text, b text)")

    def sent(batch: list[Message]) -> Landed:
        admin.execute("TRUNCATE t")
        return land(admin, decoded(admin, batch, format, **characters))

    alone = [sent([message]) for message in messages(values)]
    rows = [row for landed in alone for row in landed.rows]
    assert sent(messages(values)) == (rows, [aside for landed in alone for aside in landed.aside], len(rows))
    for offset, (value, landed) in enumerate(zip(values, alone, strict=True)):
        if numbered:
            assert all(row[0] == offset for row in landed.rows)
        else:
            compare(value, landed, copied(admin, options, value))


def compare(value: bytes, landed: Landed, bare: Rows | None) -> None:
    """Hold a message's rows to those that COPY makes of it; None where it makes an error."""
    if bare is None:  # we make line ends alike, which COPY asks for
        assert landed.aside or b"\r" in value
    elif landed.aside:  # what COPY drops, or takes for an end, or for no line at all
        assert value.endswith(b"\\") or b"\\." in value or b"\r" in value or not value
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
    setup(admin, IS_JSON)
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

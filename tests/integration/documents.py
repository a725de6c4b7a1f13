"""Tables and JSON messages for them, drawn by Hypothesis, and what PostgreSQL makes of each message alone."""

from __future__ import annotations

import json
from typing import NamedTuple

from hypothesis import strategies as st

from pipeline_kafka.decoders.names import identifier
from tests.integration.test_values import Connection

special = st.sampled_from(
    ["", "\\N", "\\.", "null", "\t", "a\nb", "\r\n", '"', "\\", "\\u0000", "\x7f\u2028", "{", "😀", "\x01"]
)
string = st.builds(json.dumps, st.text(max_size=6) | special, ensure_ascii=st.booleans())
string |= st.sampled_from(['"\\/\\b\\f"', '"\\u005c\\u0022\\u000a"', '"\\ud83d\\ude00x"', '"x\\u0000"', '"\\ud800"'])
whole = st.integers(-(10**22), 10**22).map(str) | st.integers(-40000, 40000).map(str)
number = whole | st.decimals(allow_nan=False, allow_infinity=False).map(str) | st.sampled_from(["1e400", "-0", "1.50"])
leaf = string | number | st.sampled_from(["true", "false", "null", '"NaN"', '"infinity"'])
blank = st.sampled_from(["", "", "", " ", "\n", "\t", "\r\n  "])


def array_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """JSON arrays, with white space here and there."""
    return st.builds("[{1}{0}]".format, st.lists(inner, max_size=3).map(",".join), blank)


def object_of(inner: st.SearchStrategy[str], names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """JSON objects, with white space here and there."""
    pairs = st.lists(st.builds("{}{}:{}{}".format, names, blank, blank, inner), max_size=3)
    return st.builds("{{{1}{0}}}".format, pairs.map(",".join), blank)


anything = st.recursive(leaf, lambda inner: array_of(inner) | object_of(inner, string), max_leaves=6)


class Type(NamedTuple):
    """A column's type: a default, values it is likely to take, and the type below, where it is a domain."""

    default: str
    values: st.SearchStrategy[str]
    base: str = ""


TYPES = {
    "smallint": Type("7", whole),
    "integer": Type("7 % 4", whole),
    "bigint": Type("-1", whole),
    "numeric": Type("0.10", number),
    "numeric(6,2)": Type("1", number),
    "double precision": Type("'NaN'", number),
    "text": Type("'x%s'", string),
    "varchar(3)": Type("''", string),
    "char(4)": Type("'c'", string),
    "boolean": Type("true", st.sampled_from(["true", "false", '"yes"', '"t"', "1", "0"])),
    "timestamptz": Type("'epoch'", st.datetimes().map(lambda at: json.dumps(at.isoformat() + "+05:30"))),
    "timestamp(0)": Type("'-infinity'", st.datetimes().map(lambda at: json.dumps(at.isoformat()))),
    "date": Type("'infinity'", st.dates().map(lambda day: json.dumps(day.isoformat()))),
    "uuid": Type("'00000000-0000-0000-0000-000000000000'", st.uuids().map(lambda uuid: json.dumps(str(uuid)))),
    "json": Type("'{}'", anything),
    "jsonb": Type("'[1.50]'", anything),
    "int[]": Type("'{}'", array_of(whole) | st.just('"{1,NULL}"')),
    "bytea": Type("'\\x00'", st.binary(max_size=4).map(lambda octets: json.dumps("\\x" + octets.hex())) | string),
    "inet": Type("'::1'", st.ip_addresses().map(lambda address: json.dumps(str(address)))),
    "interval": Type("'1 day'", st.sampled_from(['"1 mon -2 days"', '"P1Y"', '"25:00:00.5"', '"-1"'])),
    "bit(3)": Type("B'101'", st.sampled_from(['"101"', '"1010"', '"x5"'])),
    "int4range": Type("'empty'", st.sampled_from(['"[1,5)"', '"(1,"', '"empty"'])),
    "money": Type("1", st.sampled_from(["12.345", '"$1,000.00"'])),
    "positive": Type("3", whole, "int"),
    "code": Type("'c'", string, "varchar(3)"),
    "document": Type("'{}'", anything, "jsonb"),
    "mood": Type("'glad'", st.sampled_from(['"glad"', '"sad"', '"Sad"'])),
    "pair": Type("'(1,a)'", st.sampled_from(['{"x":1}', '{"y":"b","x":null}', '{"X":1}', '"(3,c)"', "{}"])),
    "citext": Type("'X'", string),
    "hstore": Type("'a=>1'", st.sampled_from(['"a=>1, b=>NULL"', '{"a":"1"}', '"\\"a\\"=>\\"\\\\\\\\\\""'])),
}
SETUP = """
CREATE EXTENSION citext; CREATE EXTENSION hstore;
CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN code AS varchar(3) NOT NULL; CREATE DOMAIN document AS jsonb CHECK (VALUE <> '0');
CREATE TYPE pair AS (x int, y varchar(2)); SET bytea_output = hex;
CREATE FUNCTION lands(message text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    document json;
    present text;
BEGIN
    FOR document IN SELECT e FROM json_array_elements(
            CASE json_typeof(message::json) WHEN 'array' THEN message::json ELSE json_build_array(message::json) END) e
    LOOP
        SELECT string_agg(quote_ident(attname), ', ') INTO present FROM pg_attribute
        WHERE attrelid = 'loose'::regclass AND attnum > 0 AND attname IN (SELECT json_object_keys(document));
        IF present IS NULL THEN
            EXECUTE 'SELECT * FROM json_populate_record(NULL::loose, $1)' USING document;
            EXECUTE 'INSERT INTO expected DEFAULT VALUES';
        ELSE
            EXECUTE format('INSERT INTO expected (%1$s) SELECT %1$s FROM json_populate_record(NULL::loose, $1)',
                           present) USING document;
        END IF;
    END LOOP;
    RETURN true;
EXCEPTION WHEN data_exception OR integrity_constraint_violation OR internal_error THEN RETURN false;  -- XX000: hstore
END $$"""

NAMES = ["a", "B", "c d", "per%s", "é", "kafka", "select", "\u2028"]
ODD_NAMES = ['quo"te', "back\\slash"]


class Drawn(NamedTuple):
    """A table's columns (name, type, default), and messages."""

    columns: list[tuple[str, str, str]]
    messages: list[str]

    def definitions(self, loose: bool = False) -> str:
        """The columns for CREATE TABLE; ``loose`` has neither domains nor defaults: json_populate_record() needs it."""
        return ", ".join(
            f"{identifier(name)} {TYPES[type].base or type if loose else f'{type} {default}'}"
            for name, type, default in self.columns
        )


def field(name: str) -> st.SearchStrategy[str]:
    """A field's name, as JSON may write it."""
    escaped = f"\\u{ord(name[0]):04x}"
    return st.sampled_from([json.dumps(name, ensure_ascii=False), json.dumps(name), f'"{escaped}{name[1:]}"'])


def objects(columns: list[tuple[str, str, str]], full: bool) -> st.SearchStrategy[str]:
    """JSON objects that name some of the columns, all but always if ``full``, and now and then something else."""

    @st.composite
    def draw_object(draw: st.DrawFn) -> str:
        pairs = []
        for name, type, _ in columns:
            values = TYPES[type].values
            if draw(st.integers(0, 9)) < (9 if full else 5):
                value = draw(values | values | values | st.just("null") | anything)
                pairs.append(f"{draw(field(name))}{draw(blank)}:{draw(blank)}{value}{draw(blank)}")
        pairs += draw(st.lists(st.builds("{}:{}".format, string | st.just('"A"'), anything), max_size=1))
        pairs += draw(st.sampled_from([[], [], [], pairs[:1]]))  # the last of two equal names wins
        return "{" + draw(blank) + ",".join(draw(st.permutations(pairs))) + "}"

    return draw_object()


@st.composite
def tables_and_messages(draw: st.DrawFn) -> Drawn:
    """A table, and messages for it: objects, arrays of them, and what is neither."""
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=2, max_size=5))
    names = draw(st.permutations(NAMES))[: len(types)]
    if draw(st.integers(0, 19)) == 0:
        names[0] = draw(st.sampled_from(ODD_NAMES))
    defaults = [draw(st.sampled_from(["", "", f"DEFAULT {TYPES[type].default}"])) for type in types]
    columns = list(zip(names, types, defaults, strict=True))
    one = objects(columns, draw(st.booleans()))
    many = st.lists(one, max_size=3).map(lambda items: f"[{','.join(items)}]")
    broken = st.sampled_from(["", "{", "3", "null", "[1]", '{"a":01}', '{"a":1}}', '{"a" 1}'])
    kinds = draw(st.sampled_from([[one], [one] * 9 + [many, broken]]))
    return Drawn(columns, draw(st.lists(st.one_of(kinds), min_size=1, max_size=draw(st.sampled_from([4, 12])))))


def expected(admin: Connection, drawn: Drawn) -> list[int]:
    """Fill table expected with what json_populate_record() makes of each message; return which it refused."""
    if admin.execute("SELECT to_regtype('pair')").fetchone() == (None,):
        admin.execute(SETUP)
    admin.execute("DROP TABLE IF EXISTS t, loose, expected")
    admin.execute(f"CREATE TABLE t ({drawn.definitions()})".encode())
    admin.execute(f"CREATE TABLE loose ({drawn.definitions(loose=True)})".encode())
    admin.execute("CREATE TABLE expected (LIKE t INCLUDING DEFAULTS)")
    landed = [admin.execute("SELECT lands(%s)", [message]).fetchone() for message in drawn.messages]
    return [number for number, answer in enumerate(landed) if answer != (True,)]

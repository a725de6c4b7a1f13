"""COPY without COPY: the same rows by an INSERT, where a session cannot be sent data, or for one message at a time.

In: a COPY … FROM STDIN as CopyPayload writes it, and its data. Out: an INSERT of what COPY would write.

Each field goes to the input function of its column's type, as COPY would give it: as a parameter of that type, or as
a string in JSON by json_to_recordset(). json and jsonb would take that string for a value: their text is cast.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from ..model import Column, Relation
from .insert import verbatim
from .names import identifier, qualified, unbounded
from .payload import Refused

_STATEMENT = re.compile(
    r"COPY (?P<relation>.+) \((?P<columns>.+)\) FROM STDIN WITH \(FORMAT (?P<format>text|csv)(?P<options>.*)\)\Z",
    re.DOTALL,
)
_NAME = re.compile(r'"((?:[^"]|"")+)"')
_OPTION = re.compile(r", (DELIMITER|QUOTE|ESCAPE|NULL) E'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_SPECIAL = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}

Fields = list[bytes | None]


class Cutter(Protocol):
    """What cuts data of COPY into fields."""

    def rows(self, data: bytes) -> Iterator[Fields]:
        """Yield the fields of each row, None for NULL. Raises Refused."""


class Copy(NamedTuple):
    """A COPY: the relation as SQL, the columns it writes, by name, and how its data are cut."""

    relation: str
    columns: tuple[str, ...]
    cutter: Cutter

    def rows(self, data: bytes) -> list[Fields]:
        """Return the fields of each row, as many as columns. Raises Refused with COPY's own SQLSTATE and words."""
        rows = list(self.cutter.rows(data))
        for row in rows:
            if len(row) < len(self.columns):
                raise Refused("22P04", f'missing data for column "{self.columns[len(row)]}"')
            if len(row) > len(self.columns):
                raise Refused("22P04", "extra data after last expected column")
        return rows

    def of(self, relation: Relation) -> list[Column]:
        """Return the columns themselves."""
        by_name = {column.name: column for column in relation.columns}
        return [by_name[name] for name in self.columns]


@lru_cache(maxsize=256)
def parse(statement: bytes) -> Copy:
    """Read a COPY that CopyPayload has written."""
    match = _STATEMENT.match(statement.decode())
    assert match, statement
    options = {name: re.sub(r"\\(.)|''", _literal, text) for name, text in _OPTION.findall(match["options"])}
    cutter = _Csv(options) if match["format"] == "csv" else _Text(options)
    return Copy(match["relation"], tuple(name.replace('""', '"') for name in _NAME.findall(match["columns"])), cutter)


def insert_from_json(relation: Relation, copy: Copy, data: bytes) -> tuple[str, list[str]]:
    """Return an INSERT of the rows that ``data`` holds, with %s for its one parameter. Raises Refused."""
    rows = [{f"v{n}": _text(field) for n, field in enumerate(row)} for row in copy.rows(data)]
    columns = copy.of(relation)
    values = ", ".join(_from_json(column, f"v{n}") for n, column in enumerate(columns))
    types = ", ".join(f"v{n} {_type_in_json(column)}" for n, column in enumerate(columns))
    source = f"pg_catalog.json_to_recordset(CAST(%s AS pg_catalog.json)) AS r({verbatim(types)})"
    return f"INSERT INTO {verbatim(_target(copy))} SELECT {values} FROM {source}", [msgspec.json.encode(rows).decode()]


def takes_parameters(relation: Relation) -> bool:
    """Tell whether insert_of_parameters() does what COPY does.

    Rules and row security apply to an INSERT only. What an interval of some fields means ('1' is a day in interval
    day) its input function must be told, which it is not of a parameter.
    """
    return relation.takes_copy and not any(column.base.startswith("interval ") for column in relation.columns)


def insert_of_parameters(relation: Relation, copy: Copy, rows: int) -> str:
    """Return an INSERT of so many rows, whose fields are its parameters $1, $2, …, one row after the other.

    A type without its length keeps the cast from cutting what the assignment then refuses.
    """
    types = [unbounded(column.base) for column in copy.of(relation)]
    numbers = iter(range(1, rows * len(types) + 1))
    values = ", ".join(f"({', '.join(f'CAST(${next(numbers)} AS {type})' for type in types)})" for _ in range(rows))
    return f"INSERT INTO {_target(copy)} VALUES {values}"


def parameters(rows: Iterable[Fields]) -> Fields:
    """Return the parameters for rows. Raises Refused for a zero byte, which would end one."""
    fields = [field for row in rows for field in row]
    if any(field is not None and 0 in field for field in fields):
        raise _zero_byte()
    return fields


class _Text:
    """Fields of the text format (CopyReadAttributesText in copyfromparse.c)."""

    def __init__(self, options: dict[str, str]) -> None:
        delimiter = options.get("DELIMITER", "\t").encode()
        self._delimiter = delimiter
        self._null = options.get("NULL", r"\N").encode()
        field = rb"((?:[^\\%b]|\\.)*+\\?)(?:%b|\Z)" % (_in_class(delimiter), re.escape(delimiter))
        self._field = re.compile(field, re.DOTALL)

    def rows(self, data: bytes) -> Iterator[Fields]:
        """Yield each row's fields."""
        for line in data.split(b"\n")[:-1]:
            raws = self._split(line) if b"\\" in line else line.split(self._delimiter)
            yield [None if raw == self._null else _unescaped(raw) for raw in raws]

    def _split(self, line: bytes) -> Iterator[bytes]:
        """Yield the fields of a line as they stand: an escaped delimiter does not end one."""
        place = 0
        while place <= len(line):
            match = self._field.match(line, place)
            assert match
            yield match[1]
            place = match.end() + (match.end() == match.end(1))


class _Csv:
    """Fields of the csv format (CopyReadAttributesCSV in copyfromparse.c): a quote may open anywhere in a field."""

    def __init__(self, options: dict[str, str]) -> None:
        quote = options.get("QUOTE", '"').encode()
        escape = options.get("ESCAPE", quote.decode()).encode()
        delimiter = options.get("DELIMITER", ",").encode()
        self._null = options.get("NULL", "").encode()
        q, e, d = map(re.escape, (quote, escape, delimiter))
        inner = rb"(?:%b[%b%b]|[^%b])*+" % (e, _in_class(escape), _in_class(quote), _in_class(quote))
        plain = rb"[^\n%b%b]+" % (_in_class(quote), _in_class(delimiter))
        self._token = re.compile(
            rb"%b(?P<quoted>%b)%b|(?P<end>%b|\n)|(?P<plain>%b)|(?P<open>.)" % (q, inner, q, d, plain), re.DOTALL
        )
        self._escaped = re.compile(rb"%b([%b%b])" % (e, _in_class(escape), _in_class(quote)))

    def rows(self, data: bytes) -> Iterator[Fields]:
        """Yield each row's fields. Raises Refused for an open quote."""
        row: Fields = []
        value: list[bytes] = []
        quoted, start = False, 0
        for match in self._token.finditer(data):
            if match.lastgroup == "end":
                is_null = not quoted and data[start : match.start()] == self._null
                row.append(None if is_null else b"".join(value))
                value, quoted, start = [], False, match.end()
                if match["end"] == b"\n":
                    yield row
                    row = []
            elif match.lastgroup == "quoted":
                value.append(self._escaped.sub(rb"\1", match["quoted"]))
                quoted = True
            elif match.lastgroup == "plain":
                value.append(match["plain"])
            else:
                raise Refused("22P04", "unterminated CSV quoted field")


def _unescaped(raw: bytes) -> bytes:
    """Return a field of the text format without its escapes."""
    return _ESCAPED.sub(_character, raw) if b"\\" in raw else raw


def _character(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes([int(match[1], 8) & 0xFF])
    return bytes([int(match[2], 16)]) if match[2] else _SPECIAL.get(match[3], match[3])


def _text(field: bytes | None) -> str | None:
    if field is None:
        return None
    try:
        text = field.decode()
    except UnicodeDecodeError as error:
        sequence = " ".join(f"0x{byte:02x}" for byte in field[error.start : error.end])
        raise Refused("22021", f'invalid byte sequence for encoding "UTF8": {sequence}') from None
    if "\0" in text:
        raise _zero_byte()
    return text


def _zero_byte() -> Refused:
    return Refused("22021", 'invalid byte sequence for encoding "UTF8": 0x00')


def _target(copy: Copy) -> str:
    return f"{copy.relation} ({', '.join(map(identifier, copy.columns))})"


def _type_in_json(column: Column) -> str:
    return "pg_catalog.text" if column.kind == "json" else qualified(column.base)


def _from_json(column: Column, name: str) -> str:
    return f"CAST({name} AS {qualified(column.base)})" if column.kind == "json" else name


def _in_class(byte: bytes) -> bytes:
    """Return a byte as it may stand within brackets of a regular expression."""
    return b"\\" + byte if byte in b"\\]^-" else byte


def _literal(match: re.Match[str]) -> str:
    return match[1] or "'"

"""The caller's own session, within a function of PL/Python, in the place of a connection.

In: plpy. Out: as much of a psycopg cursor as decoders and loader use, by the server programming interface (SPI).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .decoders import fields
from .decoders.insert import array
from .model import Consumer, Relation
from .placeholders import as_text, numbered

Row = dict[str, Any]
Parameters = Iterable[Any] | Mapping[str, Any]

_EXECUTE_AS = "SELECT pipeline_kafka.execute_as(%s::oid, %s, %s, %s::text[])"


class Session:
    """Runs statements with %s or %(name)s for each parameter, whose text form is sent. All raise plpy.SPIError."""

    def __init__(self, plpy: Any) -> None:
        self._plpy = plpy
        self._plans: dict[str, Any] = {}
        self._rows: list[Row] = []

    def execute(self, query: bytes | str, params: Parameters = ()) -> Session:
        """Run a statement."""
        self._rows = list(self._plpy.execute(*self._planned(query, params)))
        return self

    def read(self, query: str, params: Parameters = ()) -> list[Row]:
        """Run a query and return its rows, by column names."""
        self.execute(query, params)
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return its first row."""
        return tuple(self._rows[0].values()) if self._rows else None

    def each(self, query: str, params: Parameters = ()) -> Iterator[Row]:
        """Yield the rows of a query while other statements run, one at a time."""
        cursor = self._plpy.cursor(*self._planned(query, params))
        while rows := list(cursor.fetch(1)):
            yield from rows
        cursor.close()

    def _planned(self, query: bytes | str, params: Parameters) -> tuple[Any, list[str | None]]:
        text, names = numbered(query)
        values = [params[name] for name in names] if isinstance(params, Mapping) else list(params)
        if text not in self._plans:
            self._plans[text] = self._plpy.prepare(text, ["text"] * len(values))
        return self._plans[text], [as_text(value) for value in values]


class OwnersCursor:
    """What Payload.load() gets: each statement is run as the owner of a consumer, with the owner's search_path.

    execute_as() switches there and back within one statement, because plpy wraps each in a subtransaction.
    """

    def __init__(self, session: Session, consumer: Consumer, relation: Relation) -> None:
        self.rowcount = -1
        self._session = session
        self._consumer = consumer
        self._relation = relation

    def execute(self, query: bytes | str, params: Iterable[Any] = ()) -> None:
        """Run a statement that gives no rows."""
        text, _ = numbered(query, "($1)[%d]")
        consumer, values = self._consumer, array(map(as_text, params))
        row = self._session.execute(_EXECUTE_AS, (consumer.switch_to, consumer.search_path, text, values)).fetchone()
        assert row is not None
        (self.rowcount,) = row

    @contextmanager
    def copy(self, statement: bytes) -> Iterator[Data]:
        """Do what a COPY … FROM STDIN does with the data that write() is given."""
        data = Data()
        yield data
        self.execute(*fields.insert_from_json(self._relation, fields.parse(statement), bytes(data.pieces)))


class Data:
    """What is written to a COPY."""

    def __init__(self) -> None:
        self.pieces = bytearray()

    def write(self, data: bytes) -> None:
        """Take a piece of it."""
        self.pieces += data

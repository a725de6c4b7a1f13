"""Which statements would write a message.

In: a payload. Out: the statements, not executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from .decoders import fields
from .decoders.payload import Payload
from .model import Relation
from .placeholders import as_text, numbered
from .session import Data
from .tries import Statement


class Unrecordable(Exception):
    """Only COPY itself does what it does to this relation."""


class Recorder:
    """Stands in for a cursor, and notes what it is told to execute: a COPY as the INSERT that does the same."""

    def __init__(self, relation: Relation) -> None:
        self.rowcount = -1
        self._relation = relation
        self._takes_parameters = fields.takes_parameters(relation)
        self._inserts: dict[tuple[bytes, int], bytes] = {}
        self._noted: list[Statement] = []

    def record(self, payload: Payload, index: int) -> list[Statement]:
        """Return the statements that write one message of a payload.

        Raises Refused where COPY would refuse it before it looks at values, Unrecordable.
        """
        self._noted = []
        payload.load(cast(Any, self), index, index + 1)
        return self._noted

    def execute(self, query: bytes | str, params: Iterable[object] = ()) -> None:
        """Note a statement."""
        values = [None if text is None else text.encode() for text in map(as_text, params)]
        self._noted.append(Statement(numbered(query)[0].encode(), values))

    @contextmanager
    def copy(self, statement: bytes) -> Iterator[Data]:
        """Note a COPY."""
        if not self._takes_parameters:
            raise Unrecordable
        data = Data()
        yield data
        copy = fields.parse(statement)
        rows = copy.rows(bytes(data.pieces))
        key = statement, len(rows)
        if key not in self._inserts:
            self._inserts[key] = fields.insert_of_parameters(self._relation, copy, len(rows)).encode()
        self._noted.append(Statement(self._inserts[key], fields.parameters(rows), copy.columns))

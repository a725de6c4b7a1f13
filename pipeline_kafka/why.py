"""Why a message was refused: what is kept beside it.

In: an error of the server's, or a decoder's refusal. Out: a Why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import psycopg
from confluent_kafka import Message

from .decoders.payload import Reject

# The last line of an error's context, where a value was being read: by COPY, whose "line N" counts in a batch and means
# nothing to a person, or as a parameter of a statement.
_COPY_PLACE = re.compile(r"^COPY .*?, line \d+(?:, column (?P<column>.*?))?(?:: .*)?\Z", re.DOTALL)
_PARAMETER_PLACE = re.compile(r"(?:\A|\n)[^\n]*\$(?P<number>\d+)[^\n]*\Z")


class Why(NamedTuple):
    """A SQLSTATE, a message, and what else the server said.

    ``column`` is a column of the relation, ``constraint`` the (schema, table, name) of a constraint: its columns are
    looked up in the catalog.
    """

    sqlstate: str
    error: str
    detail: str | None = None
    hint: str | None = None
    context: str | None = None
    column: str | None = None
    constraint: tuple[str, str, str] | None = None


class Bad(NamedTuple):
    """A message that its relation does not take, and why."""

    message: Message
    why: Why


def of_error(error: psycopg.Error, names: frozenset[str], parameters: Sequence[str] = ()) -> Why:
    """Return what an error of the server's says.

    ``names`` are the relation's columns, ``parameters`` those that the statement's parameters are for, row by row.
    """
    diag = error.diag
    context, found = _split(diag.context or "", parameters)
    column = diag.column_name or found
    constraint = None
    if diag.constraint_name and diag.table_name:
        constraint = (diag.schema_name or "", diag.table_name, diag.constraint_name)
    return Why(
        error.sqlstate or "",
        diag.message_primary or str(error),
        diag.message_detail,
        diag.message_hint,
        context or None,
        column if column in names else None,
        constraint,
    )


def reads_parameter(error: psycopg.Error) -> bool:
    """Tell whether the server was reading a statement's parameter when it failed (bind_param_error_callback())."""
    context = error.diag.context or ""
    return _COPY_PLACE.match(context.rpartition("\n")[2]) is None and _PARAMETER_PLACE.search(context) is not None


def of_reject(reject: Reject) -> Bad:
    """Return a decoder's refusal in the same form."""
    return Bad(reject.message, Why(reject.sqlstate, reject.error))


def _split(context: str, parameters: Sequence[str]) -> tuple[str, str | None]:
    """Part an error's context from its last line, if that tells of a value, and from that take the column."""
    above, newline, last = context.rpartition("\nCOPY ")
    if copy := _COPY_PLACE.match("COPY " + last if newline else context):
        return above, copy["column"]
    if parameter := _PARAMETER_PLACE.search(context):
        number = int(parameter["number"]) - 1
        return context[: parameter.start()], parameters[number % len(parameters)] if parameters else None
    return context, None

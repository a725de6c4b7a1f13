"""What went wrong, and so what is done about it.

In: a SQLSTATE, or an exception of psycopg's. Out: its kind.
"""

from __future__ import annotations

from enum import Enum

import psycopg
from confluent_kafka import KafkaException


class Kind(Enum):
    """DATA: set the message aside. OUTAGE: try again soon. MISCONFIGURED: pause this consumer, say why, try again."""

    DATA = "data"
    OUTAGE = "outage"
    MISCONFIGURED = "misconfigured"


# Classes of Appendix A of PostgreSQL's manual. Anything not named here comes from the row or from a user's
# RAISE with a code of its own, and belongs to the message.
_KINDS = {
    Kind.OUTAGE: ("08", "25", "40", "53", "55", "57", "58", "72", "F0", "HV"),
    Kind.MISCONFIGURED: ("0A", "0L", "0P", "28", "3D", "3F", "42", "XX"),
}
_KIND_OF_CLASS = {code: kind for kind, codes in _KINDS.items() for code in codes}


class PipelineError(Exception):
    """The base of this package's own errors."""


class PositionLost(PipelineError):
    """Offsets are not where this worker left them: it lost the partition, or somebody moved the consumer."""


class Redefined(PipelineError):
    """The relation is not defined any more as it was when the batch was decoded."""


class LetGo(PipelineError):
    """The database is being dropped or renamed: the worker leaves it."""


class NothingToDo(PipelineError):
    """The worker has no work here: the reason is the message."""


def kind_of(sqlstate: str | None) -> Kind:
    """Return what kind of failure a SQLSTATE (5 characters, or None where the connection broke) stands for."""
    if sqlstate is None:
        return Kind.OUTAGE
    return _KIND_OF_CLASS.get(sqlstate[:2], Kind.DATA)


def kind_of_error(error: psycopg.Error) -> Kind:
    """Return what kind of failure an error stands for.

    A row that a policy of row security refuses has the code of a missing privilege (ExecWithCheckOptions in
    PostgreSQL's execMain.c), but is a matter of that row: only the message tells.
    """
    message = error.diag.message_primary or ""
    if error.sqlstate == "42501" and message.startswith("new row violates row-level security policy"):
        return Kind.DATA
    return kind_of(error.sqlstate)


def describe(error: BaseException) -> str:
    """Return an error as one text a person can act on: message, detail, hint and, for COPY, the place."""
    if isinstance(error, KafkaException):
        return f"Kafka: {error.args[0].str()}"
    if not isinstance(error, psycopg.Error) or error.diag.message_primary is None:
        return str(error).strip() or type(error).__name__
    diag = error.diag
    parts = [diag.message_primary, diag.message_detail, diag.message_hint, diag.context]
    return "\n".join(part for part in parts if part)

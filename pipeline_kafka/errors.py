"""What went wrong, and so what is done about it.

In: a SQLSTATE, or an exception of psycopg's; the users' own rules. Out: an action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

import psycopg
from confluent_kafka import KafkaException


class Action(Enum):
    """What an error is answered with.

    RETRY: the batch again, soon. SET_ASIDE: the message is at fault, on_error decides. PAUSE: the set-up is at fault:
    this consumer waits, says why, and tries again from time to time.
    """

    RETRY = "retry"
    SET_ASIDE = "set_aside"
    PAUSE = "pause"


class Default(NamedTuple):
    """An action, and in a few words what the errors of a code or class are."""

    action: Action
    meaning: str


ROW_SECURITY = "42501"  # insufficient_privilege: also what a row is refused with that violates a policy

# By class (2 characters) or code (5) of Appendix A of PostgreSQL's manual. This is the one place: the view
# error_actions shows it. What is not named comes from the row or from a user's RAISE with a code of its own.
DEFAULTS = {
    "08": Default(Action.RETRY, "connection"),
    "0A": Default(Action.PAUSE, "feature not supported"),
    "0L": Default(Action.PAUSE, "invalid grantor"),
    "0P": Default(Action.PAUSE, "invalid role"),
    "22": Default(Action.SET_ASIDE, "a value that is out of range, malformed or wrongly encoded"),
    "2200H": Default(Action.PAUSE, "a sequence has no number left"),
    "23": Default(Action.SET_ASIDE, "a constraint is violated"),
    "25": Default(Action.RETRY, "transaction state, such as a read-only one"),
    "26": Default(Action.RETRY, "a prepared statement is gone, as behind a connection pool"),
    "28": Default(Action.PAUSE, "invalid authorization"),
    "3B": Default(Action.RETRY, "savepoint"),
    "3D": Default(Action.PAUSE, "invalid catalog name"),
    "3F": Default(Action.PAUSE, "invalid schema name"),
    "40": Default(Action.RETRY, "deadlock, serialization failure"),
    "42": Default(Action.PAUSE, "undefined or misused table, column, function or type"),
    ROW_SECURITY: Default(Action.PAUSE, "missing privilege; a row that violates a row security policy is set_aside"),
    "44": Default(Action.SET_ASIDE, "a view's CHECK OPTION is violated"),
    "53": Default(Action.RETRY, "disk full, out of memory, too many connections"),
    "54": Default(Action.SET_ASIDE, "a value that is too large or too complex"),
    "55": Default(Action.RETRY, "an object is in use or locked"),
    "55000": Default(Action.PAUSE, "an object is not in the state it must be in"),
    "57": Default(Action.RETRY, "timeout, cancellation, shutdown"),
    "58": Default(Action.RETRY, "system error"),
    "72": Default(Action.RETRY, "snapshot too old"),
    "F0": Default(Action.RETRY, "configuration file"),
    "HV": Default(Action.RETRY, "foreign data wrapper"),
    "P0": Default(Action.SET_ASIDE, "RAISE in a trigger"),
    "XX": Default(Action.PAUSE, "internal error"),
}
OTHERS = Default(Action.SET_ASIDE, "all others, such as a RAISE with a code of its own")


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


class Rules:
    """The defaults, and over them the rows of pipeline_kafka.error_rules: pairs of a code or class and an action."""

    def __init__(self, overrides: Iterable[tuple[str, str]] = ()) -> None:
        self._overrides = {code: Action(action) for code, action in overrides}

    def action(self, sqlstate: str | None, *, row_security: bool = False) -> Action:
        """Return what is done about a SQLSTATE (5 characters; None or empty where the connection broke).

        A code counts before its class, and an override before a default. ``row_security`` tells that a policy has
        refused the row.
        """
        if not sqlstate:
            return Action.RETRY
        for code in (sqlstate, sqlstate[:2]):
            if code in self._overrides:
                return self._overrides[code]
        if row_security:
            return Action.SET_ASIDE
        return (DEFAULTS.get(sqlstate) or DEFAULTS.get(sqlstate[:2], OTHERS)).action

    def action_of(self, error: psycopg.Error) -> Action:
        """Return what is done about an error of the server's."""
        return self.action(error.sqlstate, row_security=_is_row_security(error))

    def blames_message(self, error: psycopg.Error, is_unreadable: Callable[[], bool]) -> bool:
        """Tell whether a message is at fault.

        That is also so where a value is none of its column's type, whatever SQLSTATE the type has for that;
        ``is_unreadable`` finds it out, and is asked only where no user's rule decides and the set-up would be blamed.
        """
        action = self.action_of(error)
        code = error.sqlstate or ""
        if action is not Action.PAUSE or code in self._overrides or code[:2] in self._overrides:
            return action is Action.SET_ASIDE
        return is_unreadable()


def _is_row_security(error: psycopg.Error) -> bool:
    """Tell whether a policy refused a row: no GRANT helps there.

    The message is translated, but the place it comes from is not, and no RAISE can give another.
    """
    return error.sqlstate == ROW_SECURITY and error.diag.source_function == "ExecWithCheckOptions"


def describe(error: BaseException) -> str:
    """Return an error as one text a person can act on: message, detail, hint and, for COPY, the place."""
    if isinstance(error, KafkaException):
        return f"Kafka: {error.args[0].str()}"
    if not isinstance(error, psycopg.Error) or error.diag.message_primary is None:
        return str(error).strip() or type(error).__name__
    diag = error.diag
    parts = [diag.message_primary, diag.message_detail, diag.message_hint, diag.context]
    return "\n".join(part for part in parts if part)

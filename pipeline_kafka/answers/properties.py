"""Whether librdkafka takes a property.

In: its name and value, and those already set. Out: why not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException

from ..kafka import OWNED, error_of
from .protocol import Request

_CHECKED_WITH = {"group.id": "pipeline_kafka-check", "log_level": "0"}
_INVALID = "Invalid value for configuration property"  # what it says of a number, and not which value it was
_TOGETHER = "Failed to create consumer"  # what librdkafka says where each property is right, but not the set of them
_HINT = "librdkafka's CONFIGURATION.md lists the properties and their values, which are case-sensitive."


def refuse_property(request: Request, name: str, value: str, hidden: bool) -> Iterator[dict[str, Any]]:
    """Ask librdkafka whether it takes a property: by itself, and with those already set.

    Yields a row with an ``error`` and a ``hint`` where the name or value is wrong by itself, or the worker owns the
    property; or with a ``warning`` where the whole set does not go together yet (SASL needs several, set one after the
    other), or the file that it names is not there. No row: it is taken. A ``hidden`` value is not repeated; nor is that
    of a property that librdkafka does not know, which may be the misspelt name of a secret.
    """
    if name in OWNED:
        yield {"error": f'property "{name}" is set by the worker itself', "hint": OWNED[name]}
        return
    reason = _refusal({**request.properties, name: value})
    if reason is None:
        if _names_file(name, value) and not os.access(value, os.R_OK):
            yield {"warning": f'property "{name}" names no file that the server\'s OS user may read here'}
        return
    said = _without(reason, value) if hidden else _with(reason, value)
    alone = _refusal({name: value})
    if alone is None or alone.startswith(_TOGETHER):
        yield {"warning": f"librdkafka does not take these properties together yet: {said}"}
    else:
        yield {"error": f'librdkafka does not take property "{name}": {said}', "hint": _HINT}


def _refusal(properties: dict[str, str]) -> str | None:
    try:
        Consumer({**properties, **_CHECKED_WITH}).close()
    except KafkaException as error:
        return str(error_of(error).str()).strip()
    return None


def _names_file(name: str, value: str) -> bool:
    return name.startswith("ssl.") and name.endswith(".location") and os.path.isabs(value)


def _with(reason: str, value: str) -> str:
    return f'{reason}: "{value}"' if reason.startswith(_INVALID) else reason


def _without(reason: str, secret: str) -> str:
    return reason.replace(secret, "********") if len(secret) > 3 else reason

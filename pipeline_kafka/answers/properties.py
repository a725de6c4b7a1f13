"""Whether librdkafka takes a property.

In: its name and value, and those already set. Out: why not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException

from ..kafka import OWNED, error_of
from .protocol import Request

_CHECKED_WITH = {"group.id": "pipeline_kafka-check", "log_level": "0"}
_TOGETHER = "Failed to create consumer"  # what librdkafka says where each property is right, but not the set of them
_HINT = "librdkafka's CONFIGURATION.md lists the properties and their values, which are case-sensitive."


def refuse_property(request: Request, name: str, value: str) -> Iterator[dict[str, Any]]:
    """Ask librdkafka whether it takes a property: by itself, and with those already set.

    Yields a row with an ``error`` and a ``hint`` where the name or value is wrong by itself, or the worker owns the
    property; or with a ``warning`` where the whole set does not go together yet (SASL needs several, set one after the
    other). No row: it is taken. The value is not repeated: it may be a secret.
    """
    if name in OWNED:
        yield {"error": f'property "{name}" is set by the worker itself', "hint": OWNED[name]}
        return
    reason = _refusal({**request.properties, name: value})
    if reason is None:
        return
    said = _without(reason, value)
    alone = _refusal({name: value})
    if alone is None or alone.startswith(_TOGETHER):
        yield {"warning": f"librdkafka does not take these properties together yet: {said}"}
    else:
        yield {"error": f'librdkafka does not take property "{name}": {said}', "hint": _HINT}


def _refusal(properties: dict[str, str]) -> str | None:
    try:
        Consumer({**properties, **_CHECKED_WITH}).close()
    except KafkaException as error:
        return str(error_of(error).str())
    return None


def _without(reason: str, secret: str) -> str:
    return reason.replace(secret, "********") if len(secret) > 3 else reason

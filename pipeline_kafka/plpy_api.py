"""What SQL functions written in PL/Python call. ``plpy`` is an argument, so that all of it runs outside a server too.

In: the arguments of the SQL functions. Out: what those functions answer with.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException

from . import kafka

_CHECKED_WITH = {"group.id": "pipeline_kafka-check", "log_level": "0"}
_TOGETHER = "Failed to create consumer"  # what librdkafka says where each property is right, but not the set of them
_HINT = "librdkafka's CONFIGURATION.md lists the properties and their values, which are case-sensitive."


def refuse_property(plpy: Any, name: str, value: str) -> dict[str, str | None]:
    """Ask librdkafka whether it takes a property: by itself, and with those already set.

    Returns an ``error`` and a ``hint`` where the name or value is wrong by itself, or the worker owns the property;
    a ``warning`` where the whole set does not go together yet (SASL needs several, set one after the other); None
    for what does not apply. The value is not repeated: it may be a secret.
    """
    answer: dict[str, str | None] = {"error": None, "hint": None, "warning": None}
    if name in kafka.OWNED:
        return {**answer, "error": f'property "{name}" is set by the worker itself', "hint": kafka.OWNED[name]}
    others = {row["name"]: row["value"] for row in plpy.execute("SELECT name, value FROM pipeline_kafka.properties")}
    reason = _refusal({**others, name: value})
    if reason is None:
        return answer
    said = _without(reason, value)
    alone = _refusal({name: value})
    if alone is None or alone.startswith(_TOGETHER):
        return {**answer, "warning": f"librdkafka does not take these properties together yet: {said}"}
    return {**answer, "error": f'librdkafka does not take property "{name}": {said}', "hint": _HINT}


def _refusal(properties: dict[str, str]) -> str | None:
    try:
        Consumer({**properties, **_CHECKED_WITH}).close()
    except KafkaException as error:
        return str(kafka.error_of(error).str())
    return None


def _without(reason: str, secret: str) -> str:
    return reason.replace(secret, "********") if len(secret) > 3 else reason

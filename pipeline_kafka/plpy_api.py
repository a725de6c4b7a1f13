"""What SQL functions written in PL/Python call. ``plpy`` is an argument, so that all of it runs outside a server too.

In: the arguments of the SQL functions. Out: nothing, or an error in plpy's terms.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException

from . import kafka

_CHECKED_WITH = {"group.id": "pipeline_kafka-check", "log_level": 0}


def check_property(plpy: Any, name: str, value: str) -> None:
    """Ask librdkafka whether it takes a property: alone, and with those already set.

    Raises an SQL error 22023 where it does not take it alone, or where the worker owns it; warns where the whole set
    does not go together (yet). The value is not repeated: it may be a secret.
    """
    if name in kafka.OWNED:
        plpy.error(f'property "{name}" is set by the worker itself', hint=kafka.OWNED[name], sqlstate="22023")
    reason = _refusal({name: value})
    if reason is not None:
        plpy.error(f'librdkafka does not take property "{name}": {_without(reason, value)}', sqlstate="22023")
    others = {row["name"]: row["value"] for row in plpy.execute("SELECT name, value FROM pipeline_kafka.properties")}
    reason = _refusal({**others, name: value})
    if reason is not None:
        plpy.warning(f"librdkafka does not take these properties together yet: {_without(reason, value)}")


def _refusal(properties: dict[str, str]) -> str | None:
    try:
        Consumer({**properties, **_CHECKED_WITH}).close()
    except (KafkaException, ValueError, TypeError) as error:
        return str(error.args[0].str() if isinstance(error, KafkaException) else error)
    return None


def _without(reason: str, secret: str) -> str:
    return reason.replace(secret, "********") if len(secret) > 3 else reason

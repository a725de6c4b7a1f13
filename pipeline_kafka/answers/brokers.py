"""Whether each broker can be spoken to, and if not, at which step it failed.

In: a request, and what is to be read. Out: rows of check_brokers().
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._metadata import BrokerMetadata, ClusterMetadata

from ..steps import CONNECTION, GROUP, TOPIC, Refusal
from .client import Kafka, Refused
from .protocol import Request, Unanswered

Row = dict[str, Any]
Readers = list[tuple[str, str]]  # pairs of a topic, or a pattern, and the group that reads it

AT_ONCE = 16  # brokers that are asked at the same time
PATIENCE = 2.0  # seconds until a broker that cannot be reached is left: another address of its name may do
LEAST = 0.5  # seconds a broker is given at the least, where others have used the time up
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_HINT = "Kafka's ACLs must let this user READ and DESCRIBE the topics, and READ the groups."
_NOWHERE = "Other brokers name it so (advertised.listeners). Workers read from it at this address."


def check_brokers(request: Request, sources: dict[str, str], readers: Readers) -> Iterator[Row]:
    """Yield a row for each broker of the request, then for each that these name by another address.

    ``sources`` tells where a broker is known from. ``readers`` are what may be read where all is well.
    """
    end = time.monotonic() + request.timeout
    known: dict[str, ClusterMetadata] = {}
    first = list(_rows(request, request.brokers, readers, end, known))
    cluster = next((row["cluster"] for row in first if row["cluster"]), None)
    for row in first:
        if row["cluster"] not in (None, cluster):
            row["hint"] = f"This is another cluster than {cluster}: remove the brokers of one."
        yield {**row, "source": sources.get(row["host"], "added")}
    named = {_address(broker) for metadata in known.values() for broker in metadata.brokers.values()}
    for row in _rows(request, sorted(named - set(request.brokers)), readers, end, {}):
        yield {
            **row,
            "source": "kafka",
            "hint": row["hint"] if row["ok"] else f"{_NOWHERE} {row['hint'] or ''}".strip(),
        }


def _rows(
    request: Request, hosts: Iterable[str], readers: Readers, end: float, known: dict[str, ClusterMetadata]
) -> Iterator[Row]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(lambda host: _row(request, host, readers, end, known), hosts)


def _row(request: Request, host: str, readers: Readers, end: float, known: dict[str, ClusterMetadata]) -> Row:
    """Ask one broker. ``known`` takes what it says of the cluster."""
    left = max(end - time.monotonic(), LEAST)
    row: Row = {"host": host, "ok": False, "step": None, "error": None, "hint": None, "id": None, "cluster": None}
    try:
        kafka = Kafka(Request(request.question, {}, [host], request.properties, left))
        metadata = known[host] = kafka.metadata(patience=PATIENCE)
        row |= {"id": _id(metadata, host), "cluster": metadata.cluster_id}
        refusal = _refusal(kafka, readers)
    except Refused as refused:
        refusal = refused.refusal
    except Unanswered as unanswered:
        refusal = Refusal(CONNECTION, unanswered.trouble.error)
    if refusal is None:
        return {**row, "ok": True, "step": "ok"}
    return {**row, "step": refusal.step.name, "error": refusal.text, "hint": refusal.step.hint}


def _id(metadata: ClusterMetadata, host: str) -> int | None:
    return next((broker.id for broker in metadata.brokers.values() if _address(broker) == host), None)


def _address(broker: BrokerMetadata) -> str:
    return f"[{broker.host}]:{broker.port}" if ":" in str(broker.host) else f"{broker.host}:{broker.port}"


def _refusal(kafka: Kafka, readers: Readers) -> Refusal | None:
    """Return which topics and groups this user may not read; None where there are none."""
    topics = sorted({topic for topic, _ in readers if not topic.startswith("^")})
    groups = sorted({group for _, group in readers})
    denied = [f'topic "{name}"' for name in _denied_topics(kafka, topics)]
    denied += [f'group "{name}"' for name in _denied_groups(kafka, groups)]
    if not denied:
        return None
    step = TOPIC if denied[0].startswith("topic") else GROUP
    return Refusal(step._replace(hint=_HINT), f"may not read {', '.join(denied)}")


def _denied_topics(kafka: Kafka, names: list[str]) -> list[str]:
    if not names:
        return []
    left = kafka.left()
    futures = kafka.admin().describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=left
    )
    return _denied(kafka, futures)


def _denied_groups(kafka: Kafka, names: list[str]) -> list[str]:
    if not names:
        return []
    left = kafka.left()
    futures = kafka.admin().describe_consumer_groups(names, include_authorized_operations=True, request_timeout=left)
    return _denied(kafka, futures)


def _denied(kafka: Kafka, futures: Mapping[str, Any]) -> list[str]:
    """Return the names of those that may not be read; what is not there is not denied."""
    names = []
    for name, future in futures.items():
        try:
            operations = future.result(kafka.left()).authorized_operations
            allowed = operations is None or AclOperation.READ in operations or AclOperation.ALL in operations
        except KafkaException as error:
            allowed = error.args[0].code() not in _DENIED
        except TimeoutError:
            raise kafka.timed_out() from None
        if not allowed:
            names.append(name)
    return names

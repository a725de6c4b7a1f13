"""The brokers that are registered in a ZooKeeper, as Kafka's were before version 4.

In: a session with ZooKeeper. Out: each broker's id, and the address of one of its listeners.
/brokers/ids/<id> is JSON: endpoints ("SSL://host:port", by the listener's name), and which protocol each listener has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from .zookeeper import ZooKeeper, ZooKeeperError

IDS = "/brokers/ids"
_ENDPOINT = re.compile(r"([^:]+)://(\[[^\]]+\]|[^:]*):(\d+)")


class Registered(NamedTuple):
    """A broker, and where it listens."""

    id: int
    host: str


class Endpoint(NamedTuple):
    """A listener of a broker: its name, the security protocol it speaks, and its address."""

    listener: str
    protocol: str
    address: str


def brokers(keeper: ZooKeeper, protocol: str) -> list[Registered]:
    """Return the brokers that are registered now, each by its listener of a security protocol, or of that name.

    Raises ZooKeeperError: 42704 where there is no such node or listener, 55000 where there is no broker.
    """
    ids = keeper.children(IDS)
    if ids is None:
        hint = "Is the address's chroot the one that the brokers' zookeeper.connect has?"
        raise ZooKeeperError("42704", f"ZooKeeper {keeper.address} has no node {IDS}", hint)
    known = {int(name): _endpoints(node.data) for name in ids if (node := keeper.get(f"{IDS}/{name}")) is not None}
    if not known:
        hint = "See whether the brokers run: they register when they start."
        raise ZooKeeperError("55000", f"no broker is registered in ZooKeeper {keeper.address}", hint)
    chosen = [Registered(id_, host) for id_, all_ in sorted(known.items()) if (host := _chosen(all_, protocol))]
    if not chosen:
        raise _no_listener(keeper, protocol, known.values())
    return chosen


def protocol_of(protocol: str | None, properties: Mapping[str, str]) -> str:
    """Return which listener is wanted: the one that is named, or that of the property security.protocol."""
    return protocol or properties.get("security.protocol", "plaintext").upper()


def _endpoints(data: bytes) -> list[Endpoint]:
    node: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    # Before version 0.9 a broker had one listener, and before 0.10.2 listeners were named by their protocols.
    texts = node.get("endpoints") or [f"PLAINTEXT://{node.get('host')}:{node.get('port')}"]
    protocols = node.get("listener_security_protocol_map") or {}
    found: list[tuple[str, ...]] = [match.groups() for text in texts if (match := _ENDPOINT.fullmatch(text))]
    return [Endpoint(name, protocols.get(name, name), f"{host}:{port}") for name, host, port in found if host]


def _chosen(endpoints: Iterable[Endpoint], wanted: str) -> str | None:
    """Return the address of the listener of that name, else of the first that speaks that protocol."""
    by_name = [e.address for e in endpoints if e.listener == wanted]
    return next(iter(by_name + [e.address for e in endpoints if e.protocol == wanted.upper()]), None)


def _no_listener(keeper: ZooKeeper, wanted: str, known: Iterable[Iterable[Endpoint]]) -> ZooKeeperError:
    there = sorted({f"{e.listener} ({e.protocol})" for endpoints in known for e in endpoints})
    text = f'no broker that is registered in ZooKeeper {keeper.address} has a listener "{wanted}"'
    return ZooKeeperError("42704", text, f"There are {', '.join(there)}.")

"""The brokers that a ZooKeeper lists, asked once.

In: a request, and a ZooKeeper's address. Out: rows of discover_brokers().
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import registered
from .old_groups import session
from .protocol import Request


def registered_brokers(request: Request, zookeeper: str | None, protocol: str | None) -> Iterator[dict[str, Any]]:
    """Yield each broker's id and address; see registered.brokers(). Raises Unanswered."""
    with session(zookeeper or "", request.timeout) as keeper:
        for broker in registered.brokers(keeper, registered.protocol_of(protocol, request.properties)):
            yield broker._asdict()

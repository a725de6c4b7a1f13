"""TCP proxies that cut, stall and delay."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack

import pytest

from tests.testbed.broker import Broker
from tests.testbed.cluster import Cluster
from tests.testbed.ports import Address
from tests.testbed.proxy import Proxy

MakeProxy = Callable[..., Proxy]


@pytest.fixture
def proxy() -> Generator[MakeProxy]:
    """Call for a proxy to a target: proxy(target, address=None). Closed at the end."""
    with ExitStack() as stack:

        def make(target: Address, address: Address | None = None) -> Proxy:
            return stack.enter_context(Proxy(target, address))

        yield make


@pytest.fixture
def postgres_proxy(proxy: MakeProxy, cluster: Cluster) -> Proxy:
    """A proxy to the session's cluster: connect with host=… and port=… of its address."""
    return proxy(cluster.address)


@pytest.fixture
def kafka_proxy(proxy: MakeProxy, own_broker: Broker) -> Proxy:
    """The proxy that clients go through who bootstrap from own_broker.proxied_bootstrap."""
    return proxy(own_broker.proxy_target, own_broker.proxy_address)

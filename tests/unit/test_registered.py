"""What brokers of each age have written into ZooKeeper, and which address is taken from it."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from pipeline_kafka.registered import Registered, brokers, protocol_of
from pipeline_kafka.zookeeper import Node, ZooKeeper, ZooKeeperError


class Keeper:
    """Stands in for a ZooKeeper with just these nodes below /brokers/ids; None: without that node."""

    address = "zk:2181/kafka"

    def __init__(self, nodes: dict[str, Any] | None) -> None:
        self.nodes = nodes

    def children(self, path: str) -> list[str] | None:
        assert path == "/brokers/ids"
        return None if self.nodes is None else sorted(self.nodes)

    def get(self, path: str) -> Node | None:
        node = (self.nodes or {})[path.rpartition("/")[2]]
        return None if node is None else Node(json.dumps(node).encode(), 0.0)


def found(protocol: str, **nodes: Any) -> list[Registered]:
    return brokers(cast(ZooKeeper, Keeper({name.removeprefix("b"): node for name, node in nodes.items()})), protocol)


# As versions 0.8, 0.9 and 3.9.1 write them.
V1 = {"version": 1, "host": "old", "port": 9092, "jmx_port": -1, "timestamp": "1"}
V3 = {**V1, "version": 3, "endpoints": ["PLAINTEXT://plain:9092", "SSL://tls:9093"]}
V5 = {
    "version": 5,
    "listener_security_protocol_map": {"INSIDE": "SSL", "OUTSIDE": "SSL", "CLIENTS": "SASL_SSL"},
    "endpoints": ["INSIDE://in:9092", "OUTSIDE://[2001:db8::1]:9093", "CLIENTS://clients:9094"],
    "host": None,
    "port": -1,
}


@pytest.mark.parametrize(
    ("node", "protocol", "address"),
    [
        (V1, "PLAINTEXT", "old:9092"),
        (V3, "PLAINTEXT", "plain:9092"),
        (V3, "SSL", "tls:9093"),
        (V5, "SSL", "in:9092"),
        (V5, "sasl_ssl", "clients:9094"),
        (V5, "OUTSIDE", "[2001:db8::1]:9093"),
    ],
)
def test_the_listener_is_taken_by_protocol_or_name(node: Any, protocol: str, address: str) -> None:
    assert found(protocol, b7=node) == [Registered(7, address)]


def test_brokers_come_in_the_order_of_their_ids() -> None:
    assert [broker.id for broker in found("PLAINTEXT", b10=V1, b9=V1, b1=V3)] == [1, 9, 10]


def test_a_broker_without_the_listener_and_one_that_just_went_are_left_out() -> None:
    assert found("SSL", b1=V1, b2=V5, b3=None) == [Registered(2, "in:9092")]


@pytest.mark.parametrize(
    ("nodes", "sqlstate", "words"),
    [
        (None, "42704", "has no node /brokers/ids"),
        ({}, "55000", "no broker is registered in ZooKeeper zk:2181/kafka"),
        ({"1": V3}, "42704", 'has a listener "SASL_SSL"'),
    ],
)
def test_what_is_missing_is_said(nodes: dict[str, Any] | None, sqlstate: str, words: str) -> None:
    with pytest.raises(ZooKeeperError, match=words) as missing:
        brokers(cast(ZooKeeper, Keeper(nodes)), "SASL_SSL")
    assert missing.value.sqlstate == sqlstate
    assert missing.value.hint


def test_the_protocol_is_that_of_the_property_unless_it_is_named() -> None:
    assert protocol_of(None, {}) == "PLAINTEXT"
    assert protocol_of(None, {"security.protocol": "sasl_ssl"}) == "SASL_SSL"
    assert protocol_of("OUTSIDE", {"security.protocol": "ssl"}) == "OUTSIDE"

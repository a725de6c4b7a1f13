"""The consumer by itself, where Kafka does not answer any more and says nothing."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Thread

import pytest
from confluent_kafka import KafkaException

from pipeline_kafka import kafka
from pipeline_kafka.consumer import Reader
from pipeline_kafka.coverage import Coverage
from pipeline_kafka.hearing import Ear
from pipeline_kafka.model import TopicPartition
from tests.fix_kafka import MakeTopic
from tests.testbed.broker import Broker
from tests.testbed.proxy import Proxy
from tests.testbed.wait import wait_until


def reader(bootstrap: str, member: str | None = None, **properties: str) -> Reader:
    """A reader that begins each partition at 0, in a group if it is a ``member`` of one."""
    given = [(name.replace("_", "."), value) for name, value in properties.items()]
    settings = kafka.consumer_settings([bootstrap], given, "readers", member, Ear().settings)
    return Reader(settings, starts, lambda keys, lost: None, Coverage(lambda topics, mine: True))


def starts(keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Begin each partition at its first offset."""
    return dict.fromkeys(keys, 0)


def take(reader: Reader) -> int:
    """The number of messages that came."""
    return reader.take(100, 1_000_000, 0.1).count


@pytest.mark.parametrize("trouble", ["cut", "stall"])
def test_a_client_to_which_kafka_is_lost_without_a_word_is_found_out(
    own_broker: Broker, kafka_proxy: Proxy, topic: MakeTopic, trouble: str
) -> None:
    name = topic(1, on=own_broker)
    own_broker.produce(name, [b"1", b"2"])
    outside = reader(own_broker.proxied_bootstrap)  # of any group: there is no session that could end
    outside.follow([TopicPartition(name, 0)])
    wait_until(lambda: take(outside), "the messages have come", accept=lambda count: count == 2)
    getattr(kafka_proxy, trouble)()
    with pytest.raises(KafkaException, match="metadata"):
        wait_until(lambda: take(outside), "it is an error that nothing comes")
    kafka_proxy.resume()
    outside.close()


def test_a_quiet_topic_is_no_error(own_broker: Broker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_kafka.pulse.QUIET", 0.0)
    name = topic(1, on=own_broker)
    outside = reader(own_broker.bootstrap)
    outside.follow([TopicPartition(name, 0)])
    assert [take(outside) for _ in range(20)] == [0] * 20
    own_broker.produce(name, [b"1"])
    wait_until(lambda: take(outside), "the message has come")
    outside.close()


def test_closing_does_not_wait_for_the_answer_to_a_commit(
    own_broker: Broker, kafka_proxy: Proxy, topic: MakeTopic
) -> None:
    name = topic(1, on=own_broker)
    own_broker.produce(name, [b"1", b"2"])
    member = reader(own_broker.proxied_bootstrap, "one", socket_timeout_ms="300000")
    member.subscribe([name])
    wait_until(lambda: take(member), "the messages have come", accept=lambda count: count == 2)
    kafka_proxy.stall()
    member.commit({TopicPartition(name, 0): 2})
    closing = Thread(target=member.close, daemon=True)
    closing.start()
    wait_until(lambda: not closing.is_alive(), "it is closed")
    assert not closing.is_alive()
    kafka_proxy.resume()

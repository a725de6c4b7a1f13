"""Many relations of one topic: when what was made for one is used for another."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Message

from pipeline_kafka import decoders
from pipeline_kafka.decoders import sharing
from pipeline_kafka.decoders.copying import CopyPayload
from pipeline_kafka.decoders.payload import Decoded, Misfit
from pipeline_kafka.decoders.sharing import Sharing
from pipeline_kafka.model import Consumer, Relation
from tests.models import column, consumer, relation

T = replace(relation(a="bigint", b="text"), qualified="public.first")
OTHER = replace(T, oid=2, qualified='public."the other"', version="2")


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The relations that something was decoded for."""
    names: list[str] = []

    def decode(consumer: Consumer, relation: Relation, messages: list[Message]) -> Decoded:
        names.append(relation.qualified)
        return real(consumer, relation, messages)

    real = decoders.decode
    monkeypatch.setattr(sharing, "decode", decode)
    return names


def messages(*values: bytes) -> list[Message]:
    return [Message(topic="events", partition=0, offset=n, value=value) for n, value in enumerate(values)]


GOOD = messages(b'{"a":1,"b":"x"}', b'{"a":2}')


def lines(decoded: Decoded) -> Any:
    assert isinstance(decoded.payload, CopyPayload)
    return decoded.payload._fragments


def test_relations_of_one_shape_share_their_lines(decodings: list[str]) -> None:
    shared = Sharing()
    first = shared.decode(consumer(), T, GOOD)
    second = shared.decode(consumer(id=2, name="the other"), OTHER, list(GOOD))
    assert decodings == [T.qualified]
    assert lines(second) is lines(first)
    assert list(lines(second)) == [b"1\tx", b"2\t\\N"]


def test_each_finds_its_own_errors() -> None:
    shared = Sharing()
    payloads = [shared.decode(consumer(), into, GOOD).payload for into in (T, OTHER)]
    error = SimpleNamespace(diag=SimpleNamespace(context="COPY the other, line 2, column a"))
    assert [payload.locate(cast(psycopg.Error, error), 0) for payload in payloads] == [None, 1]


@pytest.mark.parametrize(
    ("other", "into", "sent"),
    [
        (consumer(unknown_fields="error"), OTHER, GOOD),
        (consumer("text"), OTHER, GOOD),
        (consumer(), replace(OTHER, columns=(column("a", "bigint"),)), GOOD),
        (consumer(), replace(OTHER, columns=(column("a", "bigint"), column("b", "jsonb"))), GOOD),
        (consumer(), OTHER, GOOD[1:]),
        (consumer(), OTHER, messages(b'{"a":1,"b":"x"}', b'{"a":3}')),
    ],
)
def test_what_reads_otherwise_is_decoded_by_itself(
    decodings: list[str], other: Consumer, into: Relation, sent: list[Message]
) -> None:
    shared = Sharing()
    shared.decode(consumer(), T, GOOD)
    shared.decode(other, into, sent)
    assert decodings == [T.qualified, into.qualified]


def test_what_was_refused_is_refused_in_the_words_of_each_relation(decodings: list[str]) -> None:
    shared, strict = Sharing(), consumer(unknown_fields="error")
    sent = messages(b'{"a":1}', b'{"z":1}')
    said = [shared.decode(strict, into, sent).rejects[0].error for into in (T, OTHER)]
    assert T.qualified in said[0]
    assert OTHER.qualified in said[1]
    assert len(decodings) == 2


def test_a_relation_that_does_not_fit_is_told_so_beside_one_that_does() -> None:
    shared, by_key = Sharing(), consumer(on_conflict="update")
    shared.decode(consumer(), T, GOOD)
    with pytest.raises(Misfit, match="primary key"):
        shared.decode(by_key, OTHER, GOOD)

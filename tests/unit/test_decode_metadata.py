"""The kafka_* columns: the text form of each value, and the columns that cannot hold one."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from pipeline_kafka.decoders import metadata
from pipeline_kafka.decoders.payload import Misfit
from pipeline_kafka.model import Column, Relation


def relation(*columns: tuple[str, str]) -> Relation:
    described = tuple(Column(name, type, type, "NULL", False) for name, type in columns)
    return Relation(1, "public.t", "r", described, "")


def text(name: str, type: str, **parts: Any) -> str | None:
    (field,) = metadata.fields(relation((name, type)))
    return metadata.texts(field, [Message(topic="events", partition=3, offset=7, **parts)])[0]


@pytest.mark.parametrize(
    ("milliseconds", "time", "number"),
    [
        (0, "1970-01-01 00:00:00.000+00", "0"),
        (1700000000123, "2023-11-14 22:13:20.123+00", "1700000000123"),
        (-2, "1969-12-31 23:59:59.998+00", "-2"),
        (253402300799999, "9999-12-31 23:59:59.999+00", "253402300799999"),
        (253402300800001, "J5373485 00:00:00.001+00", "253402300800001"),
        (2**63 - 1, "J106754431755 07:12:55.807+00", str(2**63 - 1)),
        (-1, None, None),
    ],
)
def test_timestamps(milliseconds: int, time: str | None, number: str | None) -> None:
    for kind in (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME):
        assert text("kafka_timestamp", "timestamp(3) with time zone", timestamp=(kind, milliseconds)) == time
        assert text("kafka_timestamp", "bigint", timestamp=(kind, milliseconds)) == number


@pytest.mark.parametrize("type", ["timestamp without time zone", "bigint", "text"])
def test_no_timestamp_is_null(type: str) -> None:
    assert text("kafka_timestamp", type, timestamp=(TIMESTAMP_NOT_AVAILABLE, 5)) is None


def test_where_a_message_stands() -> None:
    assert text("kafka_topic", "character varying(20)") == "events"
    assert text("kafka_partition", "integer") == "3"
    assert text("kafka_offset", "numeric(20,0)") == "7"


def test_keys_and_headers() -> None:
    assert text("kafka_key", "bytea", key=b"a\xff") == "\\x61ff"
    assert text("kafka_key", "jsonb", key='"é"'.encode()) == '"é"'
    assert text("kafka_key", "bytea") is text("kafka_key", "text") is text("kafka_headers", "jsonb") is None
    assert text("kafka_headers", "text", headers=[("a", b"x")]) == '[{"name":"a","value":"x"}]'


@pytest.mark.parametrize("type", ["text", "character(3)", "json", "uuid", "bigint"])
def test_a_key_that_is_no_text_is_told_apart_before_it_reaches_the_server(type: str) -> None:
    fields = metadata.fields(relation(("kafka_key", type)))
    messages = [Message(key=key) for key in (b"a", b"ab\xff", None, b"a\0")]
    kept, rejects = metadata.legible(fields, messages)
    assert kept == [messages[0], messages[2]]
    assert [(reject.message, reject.sqlstate) for reject in rejects] == [(messages[1], "22021"), (messages[3], "22021")]
    assert rejects[0].error == (
        f'the key, for column "kafka_key" of type {type}, is not UTF-8: byte 0xff at position 2; make the column bytea'
    )


def test_any_key_will_do_for_bytea() -> None:
    messages = [Message(key=b"\xff")]
    assert metadata.legible(metadata.fields(relation(("kafka_key", "bytea"))), messages) == (messages, [])


@pytest.mark.parametrize(
    ("name", "type"), [("kafka_offset", "boolean"), ("kafka_timestamp", "date"), ("kafka_key", "text[]")]
)
def test_a_type_that_cannot_hold_the_value_is_a_misfit(name: str, type: str) -> None:
    with pytest.raises(Misfit, match=f'"{name}" is of type .*: make it one of'):
        metadata.fields(relation((name, type)))


def test_what_the_server_fills_and_other_names_are_not_ours() -> None:
    generated = Column("kafka_offset", "boolean", "boolean", "NULL", True)
    other = Column("kafka_offsets", "boolean", "boolean", "NULL", False)
    assert metadata.fields(Relation(1, "public.t", "r", (generated, other), "")) == []

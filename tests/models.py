"""Consumers and relations as the catalog would give them, for tests that decode without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline_kafka.model import Column, Consumer, Relation

_DEFAULTS = Consumer(
    id=1,
    topic="events",
    exclude=None,
    relation=1,
    name="t",
    owner="postgres",
    switch_to=None,
    search_path="",
    group_id="g",
    format="json",
    delimiter="\t",
    quote=None,
    escape=None,
    null_string=None,
    header=False,
    unknown_fields="ignore",
    batchsize=25_000,
    maxbytes=16_000_000,
    timeout=250,
    start_offset=None,
    start_timestamp=None,
    start_last=None,
    started=True,
    on_error="dead_letter",
    on_null="skip",
    on_conflict="error",
    conflict_key=None,
    max_dead_letters=None,
    on_offset_lost="stop",
)


def consumer(format: str = "json", **options: Any) -> Consumer:
    """A consumer of topic events into relation t, with what consume_begin() would fill in."""
    return replace(_DEFAULTS, format=format, **options)


def relation(**columns: str) -> Relation:
    """Table public.t with these columns by name and type; one of type "generated" is the server's to fill."""
    return Relation(1, "public.t", "r", tuple(column(*item) for item in columns.items()), "")


def column(name: str, type: str) -> Column:
    """A column without a default."""
    kind = "json" if type in ("json", "jsonb") else "nested" if type.endswith("[]") else "scalar"
    return Column(name, type, type, "NULL", type == "generated", kind)

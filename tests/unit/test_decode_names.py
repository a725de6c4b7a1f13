"""Types and identifiers as SQL that no setting changes."""

from __future__ import annotations

import pytest

from pipeline_kafka.decoders.names import family, identifier, literal, qualified, unbounded


@pytest.mark.parametrize(
    ("type", "is_qualified", "is_unbounded"),
    [
        ("bigint", "bigint", "bigint"),
        ("character varying(3)[]", "character varying(3)[]", "character varying[]"),
        ("character(4)", "character(4)", "pg_catalog.bpchar"),
        ("bit(3)[]", "bit(3)[]", 'pg_catalog."bit"[]'),
        ("bit varying(3)", "bit varying(3)", "bit varying"),
        ('"bit"', 'pg_catalog."bit"', 'pg_catalog."bit"'),
        ('"char"', 'pg_catalog."char"', 'pg_catalog."char"'),
        ("timestamp(3) with time zone", "timestamp(3) with time zone", "timestamp with time zone"),
        ("interval day to second(3)", "interval day to second(3)", "interval day to second"),
        ("numeric(10,2)", "numeric(10,2)", "numeric"),
        ("text[]", "pg_catalog.text[]", "pg_catalog.text[]"),
        ("int4range", "pg_catalog.int4range", "pg_catalog.int4range"),
        ("public.geometry(Point,4326)", "public.geometry(Point,4326)", "public.geometry"),
        ('"my (odd)"."ty""pe.(2)"(3)', '"my (odd)"."ty""pe.(2)"(3)', '"my (odd)"."ty""pe.(2)"'),
        ("integer_like.x", "integer_like.x", "integer_like.x"),
    ],
)
def test_types_outside_the_grammar_have_their_schema(type: str, is_qualified: str, is_unbounded: str) -> None:
    assert (qualified(type), unbounded(type)) == (is_qualified, is_unbounded)


def test_a_family_is_the_type_without_its_modifier() -> None:
    assert family("timestamp(3) without time zone") == "timestamp without time zone"


def test_quoting() -> None:
    assert identifier('a"b') == '"a""b"'
    assert literal("it's \\N") == "E'it''s \\\\N'"

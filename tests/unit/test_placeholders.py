"""psycopg's placeholders as numbers, and parameters as text."""

from __future__ import annotations

import pytest
from psycopg.types.json import Json

from pipeline_kafka.placeholders import as_text, numbered


@pytest.mark.parametrize(
    ("query", "text", "names"),
    [
        ("SELECT %s, '100%%', %s", "SELECT $1, '100%', $2", ("1", "2")),
        (b"SELECT %(a)s, %(b)s, %(a)s", "SELECT $1, $2, $1", ("a", "b")),
        ("SELECT 'x%%s' %% 3", "SELECT 'x%s' % 3", ()),
    ],
)
def test_placeholders_are_numbered(query: bytes | str, text: str, names: tuple[str, ...]) -> None:
    assert numbered(query) == (text, names)


def test_the_form_of_a_number() -> None:
    assert numbered("SELECT %s", "($1)[%d]") == ("SELECT ($1)[1]", ("1",))


def test_parameters_are_text() -> None:
    values = ["a", 1, None, Json(b"[1]", dumps=bytes), True]
    assert list(map(as_text, values)) == ["a", "1", None, "[1]", "True"]

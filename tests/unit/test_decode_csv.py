"""Format csv: what is sent on to COPY, and what is not."""

from __future__ import annotations

import pytest

from pipeline_kafka.decoders.csv import Quotes
from pipeline_kafka.decoders.payload import Refused

STANDARD = Quotes(b'"', b'"')
BACKSLASH = Quotes(b'"', b"\\")


@pytest.mark.parametrize(
    ("quotes", "value", "rows"),
    [
        (STANDARD, b"a,b\n", b"a,b"),
        (STANDARD, b"a,b\r\nc,d\r\n", b"a,b\nc,d"),
        (STANDARD, b'a,"b\r\n""\n"\r\n', b'a,"b\r\n""\n"'),
        (STANDARD, b"", b""),
        (STANDARD, b"a\n\n", b"a\n"),
        (STANDARD, b'"\n\\.\n",b', b'"\n\\.\n",b'),
        (STANDARD, b"a,\\.\n\\.b", b"a,\\.\n\\.b"),
        (BACKSLASH, b'"a\\"\r\n",b\r\n', b'"a\\"\r\n",b'),
        (BACKSLASH, b'"a\\\\",b\n', b'"a\\\\",b'),
        (BACKSLASH, b'a\\",b"\n', b'a\\",b"'),
    ],
)
def test_rows_end_alike_and_quotes_are_left_alone(quotes: Quotes, value: bytes, rows: bytes) -> None:
    assert quotes.frame(value, b"") == rows


def test_the_prefix_stands_before_each_row_and_not_within_quotes() -> None:
    assert STANDARD.frame(b'"a\nb"\r\nc\n', b"7,") == b'7,"a\nb"\n7,c'


@pytest.mark.parametrize(
    ("quotes", "value", "reason"),
    [
        (STANDARD, b'a,"b', "within quotes"),
        (STANDARD, b'"a"",\n', "within quotes"),
        (BACKSLASH, b'"a\\"', "within quotes"),
        (BACKSLASH, b'"a\\', "within quotes"),
        (STANDARD, b"a\n\\.\nb", "end-of-copy marker"),
        (STANDARD, b"\\.", "end-of-copy marker"),
        (STANDARD, b"\\.\r\n", "end-of-copy marker"),
        (STANDARD, b"a\rb", "unquoted carriage return"),
    ],
)
def test_what_would_end_the_copy_or_join_the_next_message_is_refused(quotes: Quotes, value: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        quotes.frame(value, b"")
    assert refused.value.sqlstate == "22P04"


def test_many_quotes_that_never_close_are_refused_in_linear_time() -> None:
    with pytest.raises(Refused):
        BACKSLASH.frame(b'"' + b"a\\" * 1_000_000, b"")


def test_values_are_quoted_whatever_the_characters() -> None:
    assert Quotes(b"1", b"2").field(b",", b"", "x12,") == b"1x2122,1,"
    assert STANDARD.field(b"\t", b"", 'a"b') == b'"a""b"\t'
    assert STANDARD.field(b",", b"", "") == b'"",'
    assert STANDARD.field(b",", b"", None) == b","
    assert STANDARD.field(b",", b"-", None) == b"-,"
    assert STANDARD.field(b",", b"-", "-") == b'"-",'

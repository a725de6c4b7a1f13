"""Format text: what is sent on to COPY, and what is not."""

from __future__ import annotations

import pytest

from pipeline_kafka.decoders.payload import Refused
from pipeline_kafka.decoders.text import frame


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        (b"a\tb", b"a\tb"),
        (b"a\tb\n", b"a\tb"),
        (b"a\tb\r\n", b"a\tb"),
        (b"", b""),
        (b"\n", b""),
        (b"a\n\n", b"a\n"),
        (b"a\r\nb\nc", b"a\nb\nc"),
        (b"\\N\t\\\\.\\\\", b"\\N\t\\\\.\\\\"),
        (b"a\\\nb\n", b"a\\nb"),
        (b"a\\\r\nb", b"a\\r\nb"),
        (b"a\\\\\nb", b"a\\\\\nb"),
    ],
)
def test_lines_end_alike_and_the_last_is_left_open(value: bytes, lines: bytes) -> None:
    assert frame(value, b"") == lines


def test_the_prefix_stands_before_each_line_and_not_within_one() -> None:
    assert frame(b"a\r\nb\\\nc\n", b"7\t") == b"7\ta\n7\tb\\nc"
    assert frame(b"", b"7\t") == b"7\t"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"a\n\\.\nb", "end-of-copy marker"),
        (b"a\\.", "end-of-copy marker"),
        (b"a\\\\\\.b", "end-of-copy marker"),
        (b"a\\", "lone backslash"),
        (b"a\\\\\\", "lone backslash"),
        (b"a\rb", "literal carriage return"),
        (b"a\r\r\n", "literal carriage return"),
    ],
)
def test_what_would_end_the_copy_or_join_the_next_message_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        frame(value, b"")
    assert refused.value.sqlstate == "22P04"

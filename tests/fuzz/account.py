"""The account of a fuzz run: each message is a row or rows, or a dead letter, or nothing where it says nothing.

In: what was sent, by its place, and a relation. Out: complaints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.fuzz.formats import FORMATS, Target
from tests.fuzz.run import Ledger, Place, Sent
from tests.integration.flow import Flow

SHOWN = 5  # complaints of a relation, and bytes of a message
SHOWN_BYTES = 300
NO_ROWS = re.compile(rb"[ \t\r\n]*\[[ \t\r\n]*\][ \t\r\n]*")  # JSON's empty array: no rows, and nothing wrong with it


class Letter(NamedTuple):
    """A dead letter."""

    value: bytes | None
    key: bytes | None
    sqlstate: str
    error: str


class Found(NamedTuple):
    """What became of a relation's messages: rows by place, dead letters by place, and the offsets' own counts."""

    rows: dict[Place, int]
    letters: dict[Place, Letter]
    counts: tuple[int, int, int]


def account(flow: Flow, name: str, target: str, ledger: Ledger) -> tuple[str, list[str]]:
    """Return a line of numbers, and what is wrong."""
    relation = f"{name}_{target}"
    format = FORMATS[name]
    found = _found(flow, relation)
    is_rows = format.settings["format"] == "json" and name != "document"
    wrong = list(_wrong(ledger, found, format.targets[target], is_rows))
    wrong += _misread(flow, relation, format.targets[target], ledger)
    nulls = sum(sent.value is None for sent in ledger.values())
    if found.counts != (len(ledger), len(found.letters), nulls):
        wrong.append(f"counted (messages, set aside, nulls): {found.counts}")
    silent = len(ledger) - len(found.rows) - len(found.letters) - nulls
    line = (
        f"{relation:<16} sent {len(ledger):>7}  in {len(found.rows):>7}  aside {len(found.letters):>7}"
        f"  null {nulls:>6}  no rows {silent:>4}"
    )
    return line, [f"{relation}: {each}" for each in wrong[:SHOWN]] + [f"{relation}: … {len(wrong)} in all"] * (
        len(wrong) > SHOWN
    )


def _found(flow: Flow, relation: str) -> Found:
    rows = flow.rows(f"SELECT kafka_partition, kafka_offset, count(*) FROM {relation} GROUP BY 1, 2")
    letters = flow.rows(
        """SELECT d.partition, d.kafka_offset, d.value, d.key, d.sqlstate, d.error FROM pipeline_kafka.dead_letters d
           JOIN pipeline_kafka.consumers c ON c.id = d.consumer_id WHERE c.relation = %s::regclass""",
        relation,
    )
    (counts,) = flow.rows(
        """SELECT sum(o.messages)::bigint, sum(o.set_aside)::bigint, sum(o.nulls)::bigint
           FROM pipeline_kafka.offsets o JOIN pipeline_kafka.consumers c ON c.id = o.consumer_id
           WHERE c.relation = %s::regclass""",
        relation,
    )
    return Found(
        {(partition, offset): count for partition, offset, count in rows},
        {(partition, offset): Letter(*rest) for partition, offset, *rest in letters},
        (counts[0], counts[1], counts[2]),
    )


def _wrong(ledger: Ledger, found: Found, target: Target, is_rows: bool) -> Iterator[str]:
    for place in (found.rows.keys() | found.letters.keys()) - ledger.keys():
        yield f"{place} was never sent"
    for place, sent in ledger.items():
        letter = found.letters.get(place)
        reason = judge(sent, found.rows.get(place, 0), letter, target, is_rows)
        if reason:
            yield f"{place} {reason}: {(sent.value or b'')[:SHOWN_BYTES]!r} {letter and letter[2:]}"


def judge(sent: Sent, rows: int, letter: Letter | None, target: Target, is_rows: bool) -> str | None:
    """Say what is wrong with one message's end; None where nothing is. ``is_rows``: an array's elements are rows."""
    if letter is not None and (letter.value, letter.key) != (sent.value, sent.key):
        return "is not whole among the dead letters"
    bad_key = target.text_key and not is_text(sent.key)
    nothing = sent.value is None or (is_rows and not bad_key and NO_ROWS.fullmatch(sent.value))
    if nothing:
        return "says nothing, and is somewhere" if rows or letter else None
    if bool(rows) == (letter is not None):
        return "is both in and aside" if rows else "is neither in nor aside"
    if sent.identity is not None and rows != (0 if bad_key else 1):
        return f"is good, and makes {rows} rows"
    return None


def is_text(key: bytes | None) -> bool:
    """Can PostgreSQL hold it as text?"""
    try:
        return key is None or "\0" not in key.decode()
    except UnicodeDecodeError:
        return False


def _misread(flow: Flow, relation: str, target: Target, ledger: Ledger) -> list[str]:
    """Good messages whose row is not what they say."""
    flow.admin.execute("CREATE TEMP TABLE good (kafka_partition int, kafka_offset bigint, identity text)")
    with flow.admin.cursor().copy("COPY good FROM STDIN") as copy:
        for place, sent in ledger.items():
            if sent.identity is not None:
                copy.write_row((*place, sent.identity))
    found = flow.rows(
        f"""SELECT good.*, {target.identity} FROM {relation} JOIN good USING (kafka_partition, kafka_offset)
            WHERE good.identity IS DISTINCT FROM {target.identity}"""
    )
    flow.admin.execute("DROP TABLE good")
    return [f"{row[:2]} says {row[2]!r}, and is read as {row[3]!r}" for row in found]

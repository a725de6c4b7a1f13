"""The fast way for JSON, the reference and json_populate_record() make the same of whatever is sent."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from pipeline_kafka.decoders import fast, json
from tests.integration.documents import Drawn, expected, tables_and_messages
from tests.integration.test_values import Connection, Landed, decoded, land, messages

on_a_server = settings(
    database=None,
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def every_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are copied however short they are."""
    monkeypatch.setattr(fast, "SHORT", 1)


@on_a_server
@given(drawn=tables_and_messages())
def test_all_ways_lead_to_the_same_rows(admin: Connection, every_run_counts: None, drawn: Drawn) -> None:
    refused = expected(admin, drawn)
    rows = admin.execute("SELECT e::text FROM expected e", prepare=False).fetchall()
    quick = sent(admin, drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json, "layout", lambda relation, strict: None)
        slow = sent(admin, drawn)
    for landed in (quick, slow):
        assert [offset for offset, _ in landed.aside] == refused
        assert landed.rows == rows
        assert landed.written == len(rows)


def sent(admin: Connection, drawn: Drawn) -> Landed:
    admin.execute("TRUNCATE t")
    batch = decoded(admin, messages(drawn.messages), "json")
    return land(admin, batch, "SELECT t::text FROM t")

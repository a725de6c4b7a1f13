"""What librdkafka says of its troubles, as the log gets it."""

from __future__ import annotations

import logging

import pytest

from pipeline_kafka import hearing
from pipeline_kafka.hearing import SAY_EVERY, Ear
from pipeline_kafka.log import logger

REFUSED = "FAIL [rdkafka#1] [thrd:a:1/bootstrap]: a:1/bootstrap: Connect to ipv4#10.0.0.1:1 failed: Connection refused"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.INFO, logger.name)
    return caplog


class Clock:
    """A clock that stands in for time.monotonic()."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def hear(ear: Ear, line: str) -> None:
    ear.emit(logging.LogRecord("librdkafka", logging.WARNING, "", 0, line, None, None))


def test_what_is_said_with_every_try_is_logged_once_a_minute(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(hearing, "time", clock)
    ear = Ear()
    for tries in range(200):
        hear(ear, f"{REFUSED} (after {tries}ms in state CONNECT, {tries} identical error(s) suppressed)")
    hear(ear, REFUSED.replace("10.0.0.1", "10.0.0.2"))
    assert len(logged.records) == 2
    assert ear.told is not None
    clock.now += SAY_EVERY
    hear(ear, f"{REFUSED} (after 3ms in state CONNECT)")
    assert len(logged.records) == 3

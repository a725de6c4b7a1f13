"""Which step failed, by what librdkafka says; the texts are its own, of version 2."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from pipeline_kafka import steps
from pipeline_kafka.hearing import Ear
from pipeline_kafka.steps import Refusal, of_error, of_log

HUNG_UP = "Disconnected: connection closed by peer: receive 0 after POLLIN (after {}ms in state {})"


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)", steps.CONNECTION),
        ("Connection setup timed out (after 30028ms in state APIVERSION_QUERY)", steps.CONNECTION),
        ("Receive failed: SSL routines::ssl/tls alert bad certificate (after 2ms in state UP)", steps.TLS),
        ("SSL handshake failed: Disconnected (after 1ms in state SSL_HANDSHAKE)", steps.TLS),
        (HUNG_UP.format(3, "APIVERSION_QUERY"), steps.TLS_WANTED),
        (HUNG_UP.format(3, "AUTH_REQ"), steps.AUTHENTICATION),
        (HUNG_UP.format(3, "UP"), steps.SASL_WANTED),
        (HUNG_UP.format(600_000, "UP"), steps.CONNECTION),
        ("something new", steps.CONNECTION),
    ],
)
def test_a_line_about_a_connection_has_its_step(text: str, step: steps.Step) -> None:
    line = f"FAIL [rdkafka#producer-3] [thrd:kafka1:9092/bootstrap]: kafka1:9092/bootstrap: {text}"
    assert of_log(line) == Refusal(step, f"kafka1:9092/bootstrap: {text}")


@pytest.mark.parametrize(
    ("code", "text", "step", "sqlstate"),
    [
        (KafkaError._RESOLVE, "Failed to resolve", "name resolution", "08001"),
        (KafkaError._SSL, "certificate verify failed", "TLS", "08001"),
        (KafkaError._AUTHENTICATION, "Invalid username or password", "authentication", "28000"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "no", "authorization", "42501"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "no", "authorization", "42501"),
        (KafkaError._INVALID_ARG, "ssl.key.location failed: PEM lib", "TLS", "08001"),
        (KafkaError._INVALID_ARG, "sasl.username and sasl.password must be set", "properties", "22023"),
        (KafkaError._TIMED_OUT, "timed out", "connection", "08006"),
        (KafkaError.INVALID_REQUEST, "no", "request", "58000"),
    ],
)
def test_an_error_has_its_step(code: int, text: str, step: str, sqlstate: str) -> None:
    refusal = of_error(KafkaError(code, text))
    assert (refusal.step.name, refusal.step.sqlstate) == (step, sqlstate)
    assert str(refusal) == f"Kafka's {step} failed: {text}"


def test_what_came_furthest_is_told() -> None:
    ear = Ear()
    on_error = ear.settings["error_cb"]
    for code, text in [
        (KafkaError._TRANSPORT, "refused"),
        (KafkaError._AUTHENTICATION, "wrong password"),
        (KafkaError._TRANSPORT, "refused again"),
        (KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down"),
    ]:
        on_error(KafkaError(code, text))
    assert ear.told == Refusal(steps.AUTHENTICATION, "wrong password")
    assert ear.reason(KafkaError(KafkaError._TIMED_OUT)) == ear.told
    assert ear.reason(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)).step == steps.TOPIC

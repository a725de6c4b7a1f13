"""What kind of failure an error is decides what becomes of a message, so each class is named here."""

from __future__ import annotations

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline_kafka.errors import DEFAULTS, Action, Rules, describe

action = Rules().action


@pytest.mark.parametrize(
    ("sqlstate", "what"),
    [
        ("22P02", "text that is no number"),
        ("22003", "out of range"),
        ("22P05", "a character that cannot be stored"),
        ("23505", "unique_violation"),
        ("23502", "not_null_violation"),
        ("23514", "check_violation"),
        ("21000", "cardinality_violation"),
        ("P0001", "a trigger's RAISE"),
        ("P0004", "a trigger's ASSERT"),
        ("44000", "with_check_option_violation"),
        ("09000", "triggered_action_exception"),
        ("54000", "program_limit_exceeded"),
        ("ZZ123", "a code of the user's own"),
    ],
)
def test_the_message_is_to_blame(sqlstate: str, what: str) -> None:
    assert action(sqlstate) is Action.SET_ASIDE, what


@pytest.mark.parametrize(
    ("sqlstate", "what"),
    [
        (None, "the connection broke"),
        ("", "no code"),
        ("08006", "connection_failure"),
        ("25006", "read_only_sql_transaction"),
        ("40001", "serialization_failure"),
        ("40P01", "deadlock_detected"),
        ("53100", "disk_full"),
        ("53200", "out_of_memory"),
        ("55P03", "lock_not_available"),
        ("26000", "invalid_sql_statement_name"),
        ("57014", "query_canceled"),
        ("57P01", "admin_shutdown"),
        ("57P03", "cannot_connect_now"),
        ("58030", "io_error"),
        ("72000", "snapshot_too_old"),
    ],
)
def test_it_passes_by_itself(sqlstate: str | None, what: str) -> None:
    assert action(sqlstate) is Action.RETRY, what


@pytest.mark.parametrize(
    ("sqlstate", "what"),
    [
        ("42P01", "undefined_table"),
        ("42703", "undefined_column"),
        ("42804", "datatype_mismatch"),
        ("42501", "insufficient_privilege"),
        ("0A000", "feature_not_supported"),
        ("28000", "invalid_authorization_specification"),
        ("3F000", "invalid_schema_name"),
        ("3D000", "invalid_catalog_name"),
        ("0LP01", "invalid_grant_operation"),
        ("XX000", "internal_error"),
        ("2200H", "sequence_generator_limit_exceeded"),
        ("55000", "object_not_in_prerequisite_state"),
    ],
)
def test_somebody_must_mend_something(sqlstate: str, what: str) -> None:
    assert action(sqlstate) is Action.PAUSE, what


def test_a_rule_comes_before_a_default_and_a_code_before_its_class() -> None:
    rules = Rules([("22", "pause"), ("22003", "retry"), ("2200H", "set_aside"), ("42", "set_aside")])
    assert rules.action("22P02") is Action.PAUSE
    assert rules.action("22003") is Action.RETRY
    assert rules.action("2200H") is Action.SET_ASIDE
    assert rules.action("42501") is Action.SET_ASIDE
    assert rules.action("23505") is Action.SET_ASIDE


def test_a_row_that_a_policy_refuses_is_to_blame_unless_a_rule_says_otherwise() -> None:
    assert action("42501", row_security=True) is Action.SET_ASIDE
    assert Rules([("42501", "pause")]).action("42501", row_security=True) is Action.PAUSE


def test_defaults_have_codes_or_classes_and_say_what_they_are() -> None:
    assert all(len(code) in (2, 5) and default.meaning for code, default in DEFAULTS.items())


def test_an_error_says_something_even_when_it_has_no_words() -> None:
    assert describe(ValueError("what it is\n")) == "what it is"
    assert describe(ValueError()) == "ValueError"
    assert describe(psycopg.OperationalError("connection refused")) == "connection refused"
    assert "Broker transport failure" in describe(KafkaException(KafkaError(KafkaError._TRANSPORT)))

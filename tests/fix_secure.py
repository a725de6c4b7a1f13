"""A broker that wants TLS, passwords and ACLs, for the session; and what a user sets to be let in."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fix_report import Watch
from tests.testbed.secure_broker import PASSWORD, PLAIN_USER, SCRAM_USER, SecureBroker


@pytest.fixture(scope="session")
def secure_broker(session_folder: Path, watch_log: Watch) -> Generator[SecureBroker]:
    """The session's broker with security; users of its listeners may do what a test allows them."""
    broker = SecureBroker(session_folder / "secure-broker")
    watch_log("secure broker's log", broker.log_file)
    with broker.start():
        yield broker


def by_certificate(broker: SecureBroker) -> dict[str, str]:
    """Properties for its SSL listener, all by file names."""
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(broker.authority.certificate),
        "ssl.certificate.location": str(broker.client.certificate),
        "ssl.key.location": str(broker.client.key),
        "ssl.key.password": PASSWORD,
    }


def by_pem(broker: SecureBroker) -> dict[str, str]:
    """Properties for its SSL listener, with what is in the files themselves."""
    return {
        "security.protocol": "SSL",
        "ssl.ca.pem": broker.authority.certificate.read_text(),
        "ssl.certificate.pem": broker.client.certificate.read_text(),
        "ssl.key.pem": broker.client.key.read_text(),
        "ssl.key.password": PASSWORD,
    }


def by_password(broker: SecureBroker, protocol: str, mechanism: str) -> dict[str, str]:
    """Properties for its SASL_PLAINTEXT or SASL_SSL listener."""
    user = PLAIN_USER if mechanism == "PLAIN" else SCRAM_USER
    authority = {"ssl.ca.location": str(broker.authority.certificate)} if protocol == "SASL_SSL" else {}
    sasl = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": PASSWORD}
    return {"security.protocol": protocol, **authority, **sasl}

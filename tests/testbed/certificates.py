"""Certificates of a test's own, made by openssl: authorities, and what they sign.

In: a folder. Out: PEM files in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.testbed.ports import LOOPBACK
from tests.testbed.process import run

DAYS = "2"
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who somebody is in TLS: a private key and a certificate, as PEM files."""

    key: Path
    certificate: Path

    def both(self, folder: Path) -> Path:
        """One file with the key and the certificate, as Kafka's PEM key stores have them."""
        path = folder / f"{self.key.stem}-both.pem"
        path.write_text(self.key.read_text() + self.certificate.read_text())
        return path


class Authority:
    """A certificate authority of our own by the name ``name``; ``folder`` keeps what it makes."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}-key.pem"
        files: list[str | Path] = ["-keyout", self._key, "-out", self.certificate]
        run(["openssl", "req", "-x509", "-days", DAYS, *NEW_KEY, "-noenc", "-subj", f"/CN={name}", *files])

    def sign(self, name: str, address: str = f"IP:{LOOPBACK}", password: str | None = None) -> Identity:
        """An identity by the common name ``name``, for ``address``; ``password`` encrypts its key."""
        identity = Identity(self.folder / f"{name}-key.pem", self.folder / f"{name}-certificate.pem")
        encryption = ["-noenc"] if password is None else ["-passout", f"pass:{password}"]
        files: list[str | Path] = ["-keyout", identity.key, "-out", identity.certificate]
        signer: list[str | Path] = [
            "-CA",
            self.certificate,
            "-CAkey",
            self._key,
            "-addext",
            f"subjectAltName={address}",
        ]
        command = ["openssl", "req", "-x509", "-days", DAYS, *NEW_KEY, *encryption, "-subj", f"/CN={name}"]
        run([*command, *signer, *files])
        for path in (identity.key, identity.certificate):
            path.chmod(0o644)  # the server's own OS user reads them, as it does a DBA's
        return identity

"""Where PostgreSQL's programs are and whom they run as."""

from __future__ import annotations

import os
import pwd
import subprocess
from functools import cache
from pathlib import Path

DEBIAN_SERVERS = Path("/usr/lib/postgresql")


@cache
def bindir() -> Path:
    """The folder of initdb and postgres: PG_CONFIG's, else Debian's newest. Raises FileNotFoundError."""
    if program := os.environ.get("PG_CONFIG"):
        return Path(subprocess.check_output([program, "--bindir"], text=True).strip())
    servers = [folder for folder in DEBIAN_SERVERS.glob("*/bin") if (folder / "initdb").exists()]
    if not servers:
        raise FileNotFoundError(f"no PostgreSQL server under {DEBIAN_SERVERS}: set PG_CONFIG or run tests/bootstrap")
    return max(servers, key=lambda folder: float(folder.parent.name))


@cache
def major_version() -> int:
    """The server's major version, 15 for 15.20."""
    answer = subprocess.check_output([bindir() / "postgres", "--version"], text=True)
    return int(answer.split()[2].partition(".")[0].rstrip("abcdefghijklmnopqrstuvwxyz"))


def server_user() -> str | None:
    """The OS user to run a server as: postgres where this is root, which it refuses, else None."""
    return "postgres" if os.geteuid() == 0 else None


def os_user() -> str:
    """The name of the OS user a server runs as."""
    return server_user() or pwd.getpwuid(os.geteuid()).pw_name

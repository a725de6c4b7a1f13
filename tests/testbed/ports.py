"""Free TCP ports on the loopback interface that no other testbed of this machine is about to use."""

from __future__ import annotations

import random
import socket
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
# Below Linux's ephemeral ports (ip_local_port_range, 32768 up): while a server restarts, no client's
# outgoing connection can sit down on its port.
CANDIDATES = range(12000, 32000)


class Address(NamedTuple):
    """Where a TCP server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def free_port() -> int:
    """A port nothing listens on, kept for this process until it ends. Raises OSError when there is none."""
    for port in random.sample(CANDIDATES, 200):
        if _is_free(port) and _hold(port):
            return port
    raise OSError(f"no free port found on {LOOPBACK}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _hold(port: int) -> bool:
    """Claim a port among testbeds: an abstract Unix socket can't be bound twice and leaves no file behind."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0pipeline_kafka-testbed-port-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # its descriptor stays open, without an object that warns about it
    return True

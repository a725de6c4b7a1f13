"""ZooKeeper, where Kafka and its consumers kept what they know before Kafka did so itself.

In: an address. Out: nodes, within a time, and errors that say what to look at.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

# h1:2181,[v6]:2181/chroot; the port may be left out, as ZooKeeper's own clients let it be.
_ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\])(:\d{1,5})?")
_SESSION = 10.0  # seconds after which ZooKeeper forgets a client that it does not hear of
_RETRY = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}


class ZooKeeperError(Exception):
    """ZooKeeper does not answer, or not as asked: with a SQLSTATE and what to look at."""

    def __init__(self, sqlstate: str, error: str, hint: str | None = None) -> None:
        super().__init__(error)
        self.sqlstate = sqlstate
        self.hint = hint


class Node(NamedTuple):
    """What a node holds, and when it was written (seconds since 1970)."""

    data: bytes
    written_at: float


class ZooKeeper:
    """A session, below the chroot of its address. Its calls end with the time it was given, or renew() gives it."""

    def __init__(self, address: str, client: KazooClient, timeout: float) -> None:
        self.address = address
        self._client = client
        self.renew(timeout)

    def renew(self, timeout: float) -> None:
        """Give the calls to come ``timeout`` seconds."""
        self._timeout = timeout
        self._end = time.monotonic() + timeout

    def children(self, path: str) -> list[str] | None:
        """Return the names of the nodes right below one, sorted; None where there is no such node."""
        found = self._ask(self._client.get_children_async, path)
        return None if found is None else sorted(found)

    def get(self, path: str) -> Node | None:
        """Return a node; None where there is none."""
        found = self._ask(self._client.get_async, path)
        return None if found is None else Node(found[0], found[1].last_modified)

    def set(self, path: str, data: bytes) -> None:
        """Write a node, which is made, with those above it, where it is missing."""
        if self._ask(self._client.set_async, path, data) is None:
            self._ask(self._client.ensure_path_async, path)
            self._ask(self._client.set_async, path, data)

    def _ask(self, call: Callable[..., Any], path: str, *arguments: Any) -> Any:
        """Return a call's answer; None where there is no such node. Raises ZooKeeperError."""
        try:
            return call(path, *arguments).get(timeout=max(self._end - time.monotonic(), 0.001))
        except NoNodeError:
            return None
        except NoAuthError:
            raise ZooKeeperError("42501", f'ZooKeeper {self.address} does not let node "{path}" be used') from None
        except KazooTimeoutError:
            raise late(self.address, self._timeout) from None
        except KazooException as error:
            raise ZooKeeperError(
                "08006", f"ZooKeeper {self.address}: {type(error).__name__} {error}".rstrip()
            ) from None


@contextmanager
def connect(address: str, timeout: float) -> Iterator[ZooKeeper]:
    """Open a session with ZooKeeper at ``address`` (h1:2181,h2:2181/chroot) for ``timeout`` seconds.

    Raises ZooKeeperError: 22023 where that is no address, 08006 where none of the hosts answers in time.
    """
    check(address)
    heard = _Heard()
    client = KazooClient(address, timeout=_SESSION, connection_retry=_RETRY, logger=heard.logger)
    begun = time.monotonic()
    try:
        if not client.start_async().wait(timeout):
            raise late(address, timeout, heard.last)
        yield ZooKeeper(address, client, timeout - (time.monotonic() - begun))
    except BaseException:  # one that hangs takes as long to close: nobody is to wait for that
        threading.Thread(target=_close, args=(client,), daemon=True).start()
        raise
    _close(client)


def _close(client: KazooClient) -> None:
    with suppress(KazooException):
        client.stop()
    client.close()


def check(address: str) -> None:
    """Raise ZooKeeperError where this is no address of a ZooKeeper."""
    hosts, slash, chroot = address.partition("/")
    right = all(_ADDRESS.fullmatch(host.strip()) for host in hosts.split(","))
    if not right or (slash and (not chroot or chroot.endswith("/") or "//" in chroot)):
        raise ZooKeeperError(
            "22023",
            f'"{address}" is no address of a ZooKeeper',
            "Write it as h1:2181,h2:2181/chroot, or without a chroot.",
        )


def late(address: str, timeout: float, why: str = "") -> ZooKeeperError:
    """Return that there was no answer in time, and why if that is known."""
    because = f": {why}" if why else ""
    hint = "See whether it runs, and can be reached from this server."
    return ZooKeeperError("08006", f"ZooKeeper {address} did not answer within {timeout:.3g} s{because}", hint)


class _Heard(logging.Handler):
    """Keeps the last complaint of a client, which is all that tells why it could not connect."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self.logger = logging.Logger("zookeeper")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what it says."""
        self.last = record.getMessage()

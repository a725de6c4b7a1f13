"""The database server dies or is restarted under load: its workers go with it, come back with it, and go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.crash.site import Site
from tests.fix_kafka import MakeTopic
from tests.testbed.wait import wait_until


def test_the_postmaster_is_killed(own_site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    own_site.consume(name, "t", parallelism=2)
    with own_site.load(name) as load:
        children = working(own_site)
        own_site.cluster.kill9()
        wait_gone(children)
        own_site.cluster.start()
        comes_back(own_site)
    own_site.exact(load, "t")
    assert own_site.cluster.resets() == 0


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_is_restarted(own_site: Site, topic: MakeTopic, mode: str) -> None:
    name = topic(4)
    own_site.consume(name, "t", parallelism=2)
    with own_site.load(name) as load:
        children = working(own_site)
        own_site.cluster.stop(mode)
        wait_gone(children)
        own_site.cluster.start()
        comes_back(own_site)
    own_site.exact(load, "t")
    assert own_site.cluster.resets() == 0


def test_a_backend_is_killed_and_the_server_resets_itself(own_site: Site, topic: MakeTopic) -> None:
    name = topic(4)
    own_site.consume(name, "t", parallelism=2)
    with own_site.load(name) as load:
        children = working(own_site)
        os.kill(own_site.admin.info.backend_pid, signal.SIGKILL)
        wait_gone(children)
        comes_back(own_site)
    own_site.exact(load, "t")
    assert own_site.cluster.resets() == 1


def working(site: Site) -> list[int]:
    """Wait until both workers share the work and rows come in; the workers' process ids."""
    site.shares({0: 2, 1: 2})
    site.progress("t")
    return [site.child(0), site.child(1)]


def comes_back(site: Site) -> None:
    """Wait until the server has its workers again, without anybody's help, and rows come in."""
    site.reconnect()
    site.shares({0: 2, 1: 2})
    site.progress("t")


def wait_gone(pids: list[int]) -> None:
    """Wait until these processes have ended."""
    wait_until(
        lambda: [pid for pid in pids if lives(pid)], "the old workers are gone", 10, accept=lambda left: not left
    )


def lives(pid: int) -> bool:
    """Is this process there, and not one that has ended and that nobody has waited for?"""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"

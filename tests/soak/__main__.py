"""`python -m tests.soak --minutes N`: the exit code is 0 where the worker's memory stayed flat and no row is wrong."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.crash.load import Load
from tests.crash.site import Site
from tests.soak.memory import Curve, resident
from tests.soak.turnover import Turnover
from tests.testbed.broker import Broker
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.folders import new_folder, remove_folder

TOPICS = ["main", "side", "other"]  # the first flows into a table that nobody ends
PARTITIONS = 4
EVERY = 1.0  # seconds between turns


def main() -> int:
    """Soak, and say how it went."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(f"ended by signal {number}"))  # in order, cleaned up
    folder = new_folder("pk-soak")
    try:
        with _site(folder) as site:
            return _soak(site, arguments)
    finally:
        remove_folder(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=30, help="how long (%(default)s)")
    parser.add_argument("--rate", type=int, default=500, help="messages a second and topic (%(default)s)")
    parser.add_argument("--settle", type=int, default=5, help="minutes before memory must be flat (%(default)s)")
    parser.add_argument("--within", type=float, default=10.0, help="MB that it may grow by then (%(default)s)")
    return parser


@contextmanager
def _site(folder: Path) -> Iterator[Site]:
    with Cluster(folder / "server") as cluster, Broker(folder / "broker") as broker:
        cluster.start()
        broker.start()
        site = Site(Database(cluster, "soak").create(), broker)
        site.look_often()
        for topic in TOPICS:
            broker.create_topic(topic, PARTITIONS)
        yield site
        site.close()


def _soak(site: Site, arguments: argparse.Namespace) -> int:
    site.consume(TOPICS[0], "kept")
    worker = site.child()
    with ExitStack() as stack:
        loads = [stack.enter_context(Load(site.kafka, topic, arguments.rate)) for topic in TOPICS]
        site.progress("kept")
        curve = _watch(site, worker, arguments.minutes)
    site.exact(loads[0], "kept")
    growth = curve.growth(arguments.settle)
    flat = growth <= arguments.within
    print(
        f"memory of the worker is {'flat' if flat else 'NOT flat'}: {growth:+.1f} MB at the most after minute"
        f" {arguments.settle}, {arguments.within:g} are allowed; {loads[0].count} rows, each of them once"
    )
    return 0 if flat else 1


def _watch(site: Site, worker: int, minutes: int) -> Curve:
    """Turn consumers over, sample the worker's memory, print a line a minute."""
    curve, turnover = Curve(), Turnover(site, TOPICS)
    begun = time.monotonic()
    while (minute := int((time.monotonic() - begun) // 60)) < minutes:
        if minute > len(curve.minutes):
            raise RuntimeError("a turn took more than a minute")
        if minute == len(curve.minutes) and minute:
            _say(site, curve, turnover)
        curve.add(minute, resident(worker))
        turnover.turn()
        time.sleep(max(0.0, begun + turnover.turns * EVERY - time.monotonic()))
    _say(site, curve, turnover)
    turnover.end()
    return curve


def _say(site: Site, curve: Curve, turnover: Turnover) -> None:
    minute = len(curve.minutes) - 1
    print(
        f"minute {minute + 1:>3}: {curve.line(minute)}, {site.messages('kept')} rows, {turnover.turns} consumers begun",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.fuzz --seed N --count N`: a fuzz run. The exit code is 0 where every message is accounted for."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.fix_kafka import link
from tests.fuzz.account import account
from tests.fuzz.formats import FORMATS
from tests.fuzz.run import PARTITIONS, Fuzz
from tests.integration.flow import Flow
from tests.testbed.broker import Broker
from tests.testbed.cluster import Cluster
from tests.testbed.database import Database
from tests.testbed.folders import new_folder, remove_folder


def main() -> int:
    """Fuzz the formats asked for, one after the other."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(f"ended by signal {number}"))  # in order, cleaned up
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.count} messages a format", flush=True)
    folder = new_folder("pk-fuzz")
    try:
        wrong = _run(folder, seed, arguments.count, arguments.format or list(FORMATS))
        if wrong or arguments.logs:
            print(f"the server's log is in {_keep(folder, arguments.logs)}")
    finally:
        remove_folder(folder)
    for complaint in wrong:
        print(f"WRONG: {complaint}")
    print(f"seed {seed}: {len(wrong)} complaints")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="of an earlier run, to send its messages again (random)")
    parser.add_argument("--count", type=int, default=100_000, help="messages a format (%(default)s)")
    parser.add_argument("--format", action="append", choices=FORMATS, help="only this one; may be repeated")
    parser.add_argument("--logs", type=Path, help="folder to leave the log in (a new one, where something is wrong)")
    return parser


def _keep(folder: Path, logs: Path | None) -> Path:
    """Copy the server's log to where it stays."""
    logs = logs or Path(tempfile.mkdtemp(prefix="pk-fuzz-logs-"))
    logs.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "server" / "server.log", logs)
    return logs


def _run(folder: Path, seed: int, count: int, names: list[str]) -> list[str]:
    with Cluster(folder / "server") as cluster, Broker(folder / "broker") as broker:
        cluster.start()
        broker.start()
        with Database(cluster, "fuzz").create().connect() as admin:
            link(admin, broker.bootstrap)
            fuzz = Fuzz(Flow(admin, broker), cluster, seed)
            return [complaint for name in names for complaint in _fuzz(fuzz, name, count)]


def _fuzz(fuzz: Fuzz, name: str, count: int) -> list[str]:
    """One format: send, read, account; and show how it went."""
    begun = time.monotonic()
    topic = fuzz.flow.kafka.create_topic(name, PARTITIONS)
    ledger = fuzz.send(name, topic, count)
    life = fuzz.life()
    try:
        fuzz.read(topic, lambda line: None)
    except TimeoutError as error:
        wrong = [f"{name} stands still: {error}"]
    else:
        wrong = []
        for _, target in fuzz.relations(name):
            line, found = account(fuzz.flow, name, target, ledger)
            print(f"{line}  {time.monotonic() - begun:5.0f} s", flush=True)
            wrong += found
    wrong += fuzz.died(life, topic)
    for relation, _ in fuzz.relations(name):
        fuzz.flow.end(topic, relation)
    return wrong


if __name__ == "__main__":
    sys.exit(main())

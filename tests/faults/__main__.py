"""`python -m tests.faults --seed N --count N`: a fault run. The exit code is 0 where every message is accounted for."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.faults.account import account, table
from tests.faults.run import play
from tests.faults.scene import Scene
from tests.testbed.folders import new_folder, remove_folder


def main() -> int:
    """Play the faults and settle the account."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(f"ended by signal {number}"))  # in order, cleaned up
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.count} faults", flush=True)
    folder = new_folder("pk-faults")
    try:
        return _run(folder, seed, arguments.count, arguments.logs)
    finally:
        remove_folder(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="of an earlier run, to play its faults again (random)")
    parser.add_argument("--count", type=int, default=200, help="faults (%(default)s)")
    parser.add_argument("--logs", type=Path, help="folder to leave the logs in (a new one, where something is wrong)")
    return parser


def _run(folder: Path, seed: int, count: int, logs: Path | None) -> int:
    begun = time.monotonic()
    with Scene(folder, seed) as scene:
        complaints = _play(scene, seed, count)
        if complaints or logs:
            print(f"logs are in {_keep(scene, logs)}")
    print(f"seed {seed}: {count} faults in {time.monotonic() - begun:.0f} s, {len(complaints)} complaints")
    return 1 if complaints else 0


def _play(scene: Scene, seed: int, count: int) -> list[str]:
    """Play, settle, show the account, and return what is wrong."""
    try:
        play(scene, seed, count, lambda line: print(line, flush=True))
        found = account(scene)
    except Exception as error:
        traceback.print_exc()
        return [f"it did not come to its account: {error}"]
    print(table(found.lines))
    for complaint in found.complaints:
        print(f"WRONG: {complaint}")
    return found.complaints


def _keep(scene: Scene, folder: Path | None) -> Path:
    """Copy the logs to where they stay."""
    folder = folder or Path(tempfile.mkdtemp(prefix="pk-faults-logs-"))
    folder.mkdir(parents=True, exist_ok=True)
    for log in scene.logs():
        if log.exists():
            shutil.copy(log, folder)
    return folder


if __name__ == "__main__":
    sys.exit(main())

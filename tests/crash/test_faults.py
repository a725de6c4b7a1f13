"""Twenty random faults under a mixed load, and every message accounted for: `make faults` plays more of them."""

from __future__ import annotations

import random
from pathlib import Path

from tests.faults.account import account, table
from tests.faults.run import plan, play
from tests.faults.scene import Scene
from tests.fix_report import Watch

FAULTS = 20


def test_random_faults(folder: Path, watch_log: Watch) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"make faults SEED={seed} N={FAULTS}")
    with Scene(folder, seed) as scene:
        for log in scene.logs():
            watch_log(log.stem, log)
        play(scene, seed, FAULTS, print)
        found = account(scene)
    print(table(found.lines))
    assert found.complaints == []


def test_a_seed_gives_the_same_faults() -> None:
    first, again, other = ([str(step) for step in plan(seed, 50)] for seed in (1, 1, 2))
    assert first == again != other

"""A fault run: a plan drawn from a seed, played step by step; each time all must go on before the next.

In: a scene, a seed, how many faults. Out: a line a step, and what was found wrong.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from tests.faults.faults import KINDS, Kind
from tests.faults.scene import Scene

PAIRED = 0.25  # the share of faults that are played within another

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One fault, or one within another. ``first`` is the number of the first, ``hold`` how long they last (seconds)."""

    first: int
    kinds: tuple[Kind, ...]
    hold: float
    seed: str  # of what the faults themselves draw

    def __str__(self) -> str:
        numbers = "+".join(f"#{self.first + n}" for n in range(len(self.kinds)))
        return f"{numbers} {', '.join(kind.name for kind in self.kinds)}, {self.hold:.1f} s"


def plan(seed: int, count: int) -> Iterator[Step]:
    """Yield the steps of a run: the same seed gives the same ones, however it goes."""
    rng = random.Random(seed)
    number = 1
    while number <= count:
        kinds = [_draw(rng, KINDS)]
        if rng.random() < PAIRED and number < count:
            kinds.append(_draw(rng, [kind for kind in KINDS if not kind.needs & kinds[0].breaks]))
        yield Step(number, tuple(kinds), max(rng.uniform(*kind.hold) for kind in kinds), f"{seed} {number}")
        number += len(kinds)


def _draw(rng: random.Random, kinds: list[Kind]) -> Kind:
    (kind,) = rng.choices(kinds, weights=[kind.weight for kind in kinds])
    return kind


def play(scene: Scene, seed: int, count: int, say: Say) -> None:
    """Play a plan. Raises TimeoutError where something does not go on after a fault; what is known then was said."""
    begun = time.monotonic()
    for step in plan(seed, count):
        say(f"{time.monotonic() - begun:7.1f} s  {step}")
        try:
            told = _play(scene, step)
            healed = time.monotonic()
            scene.go_on()
        except Exception:
            for line in scene.state():
                say(f"           {line}")
            raise
        say(f"{'':11}{'; '.join(told)}; all goes on {time.monotonic() - healed:.1f} s after it")


def _play(scene: Scene, step: Step) -> list[str]:
    """Break, hold, and heal in reverse order; return what was broken."""
    rng = random.Random(step.seed)
    with ExitStack() as stack:
        told = [stack.enter_context(kind.act(scene, rng)) for kind in step.kinds]
        time.sleep(step.hold)
    return told

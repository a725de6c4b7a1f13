"""A measured row: its value, what it is compared with, and what was asked for.

In: numbers. Out: Result, with the targets that belong to its name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a row's ratio or value: ``least`` says whether it is the least or the most that will do."""

    of: str  # "ratio" or "value"
    least: bool
    bound: float
    aim: float | None = None  # where the work goes on to

    def met(self, number: float, bound: float | None = None) -> bool:
        """Tell whether a number keeps to the bound, or to another one on the same side."""
        bound = self.bound if bound is None else bound
        return number >= bound if self.least else number <= bound

    def __str__(self) -> str:
        sign = "≥" if self.least else "≤"
        aim = f" (aim {self.aim:g})" if self.aim is not None else ""
        return f"{self.of} {sign} {self.bound:g}{aim}"


TARGETS = {
    "text-1": Target("ratio", True, 0.65),
    "csv-1": Target("ratio", True, 0.65),
    "json-1": Target("ratio", True, 0.5, aim=0.6),
    "text-2/1": Target("ratio", True, 1.25),
    "csv-2/1": Target("ratio", True, 1.25),
    "json-2/1": Target("ratio", True, 1.25),
    "latency-p50": Target("value", False, 8),
    "latency-p99": Target("value", False, 40),
    "idle": Target("value", False, 2),
    "memory": Target("value", False, 250),
    "kill": Target("value", False, 3),
    "fan-out": Target("ratio", True, 2),
    "storm-value": Target("value", True, 5_000),
    "storm-check": Target("value", True, 5_000),
    "many-begin": Target("value", False, 50),
    "many-cost": Target("ratio", False, 1.3),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the report. ``ratio`` is to the row or quantity that ``reference`` names.

    ``wrong`` says how the data differed from what was sent; ``note`` is for the table, ``details`` are further numbers
    by name.
    """

    name: str
    value: float | None
    unit: str
    ratio: float | None = None
    reference: str | None = None
    wrong: str | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> Target | None:
        """What was asked of this row, if anything was."""
        return TARGETS.get(self.name)

    @property
    def met(self) -> bool | None:
        """Tell whether the target is met; None where there is none. Wrong data meet nothing."""
        return self._keeps(self.target.bound) if self.target else None

    @property
    def aim_met(self) -> bool | None:
        """The same for the target's aim."""
        return self._keeps(self.target.aim) if self.target and self.target.aim is not None else None

    def as_json(self) -> dict[str, Any]:
        """Return the row for the JSON file."""
        target = str(self.target) if self.target else None
        return asdict(self) | {"target": target, "met": self.met, "aim_met": self.aim_met}

    def _keeps(self, bound: float) -> bool:
        assert self.target is not None
        number = self.ratio if self.target.of == "ratio" else self.value
        return not self.wrong and number is not None and self.target.met(number, bound)

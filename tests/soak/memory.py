"""A worker's resident memory, minute by minute.

In: samples in megabytes. Out: a line a minute, and whether it stays flat.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median


def resident(pid: int) -> float:
    """The resident memory of a process in MB (VmRSS of proc(5)). Raises FileNotFoundError when it is gone."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise FileNotFoundError(f"process {pid} has ended")


class Curve:
    """Samples, a list a minute."""

    def __init__(self) -> None:
        self.minutes: list[list[float]] = []

    def add(self, minute: int, sample: float) -> None:
        """Take a sample; minutes begin at 0 and come in order."""
        while len(self.minutes) <= minute:
            self.minutes.append([])
        self.minutes[minute].append(sample)

    def medians(self) -> list[float]:
        """The median of each minute, which a moment's peak does not move."""
        return [median(samples) for samples in self.minutes if samples]

    def line(self, minute: int) -> str:
        """One minute as text."""
        samples = self.minutes[minute]
        return f"{median(samples):7.1f} MB ({min(samples):.1f} to {max(samples):.1f})"

    def growth(self, settled: int) -> float:
        """By how many MB the highest median lies over the first one, from minute ``settled`` on; 0 with only one."""
        later = self.medians()[settled:]
        return max(later) - later[0] if later else 0.0

"""What the kernel says of a process: its CPU time and its peak memory (proc(5)).

In: process ids. Out: seconds and bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # fields 14 and 15 of /proc/PID/stat, counted from the one after the name


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, user and system. Raises FileNotFoundError when it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICK


class Meter:
    """The CPU time that groups of processes use from now on; each must live until used() is called."""

    def __init__(self, **groups: Iterable[int]) -> None:
        self._groups = {name: list(pids) for name, pids in groups.items()}
        self._before = self._read()

    def used(self) -> dict[str, float]:
        """Return the seconds of each group."""
        return {name: after - self._before[name] for name, after in self._read().items()}

    def used_each(self, rows: int) -> dict[str, float]:
        """Return the microseconds of each group for one of ``rows``."""
        return {f"{name}_cpu_us": seconds / rows * 1e6 for name, seconds in self.used().items()}

    def _read(self) -> dict[str, float]:
        return {name: sum(map(cpu_seconds, pids)) for name, pids in self._groups.items()}


def peak_memory(pid: int) -> int:
    """Return the most bytes a process has had resident (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status has no VmHWM")

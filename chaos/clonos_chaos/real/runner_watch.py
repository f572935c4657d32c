"""Processes of a run seen from outside: which still run, and how much memory each uses."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from clonos_chaos.scenario.run_record import Check
from clonos_chaos.scenario.scenario import ScenarioLimits


def process_of(pid: int) -> psutil.Process | None:
    """Returns the process; None if it has ended."""
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def wait_until_gone(processes: Iterable[psutil.Process | None], within_s: float) -> list[int]:
    """Waits until processes end; returns those that still run."""
    running = [process for process in processes if process is not None and process.is_running()]
    _, alive = psutil.wait_procs(running, timeout=within_s)
    return sorted(process.pid for process in alive)


class MemoryWatch:
    """Resident memory of attacked processes: before the attack, peak, and last."""

    def __init__(self) -> None:
        self._is_attacked = False
        self._before: dict[int, int] = {}
        self._most: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def begin(self) -> None:
        """Marks the begin of the first attack."""
        self._is_attacked = True

    def look(self, pids: Iterable[int]) -> None:
        """Samples the memory of these processes."""
        for pid in pids:
            try:
                self._last[pid] = used_bytes = int(psutil.Process(pid).memory_info().rss)
            except psutil.Error:  # it has died meanwhile
                continue
            if not self._is_attacked:
                self._before[pid] = used_bytes
            elif used_bytes > self._most.get(pid, 0):
                self._most[pid] = used_bytes

    def checks(self, limits: ScenarioLimits) -> list[Check]:
        """Returns the checks that the limits require."""
        if not self._is_attacked:
            return []
        peak = max((most - self._before.get(pid, most) for pid, most in self._most.items()), default=0)
        left = max((last - self._before.get(pid, last) for pid, last in self._last.items()), default=0)
        return [
            _check("memory taken by a process while attacked", peak, limits.memory_peak_bytes),
            _check("memory that it keeps afterwards", left, limits.memory_left_bytes),
        ]


def _check(name: str, found_bytes: int, most_bytes: int) -> Check:
    wanted, found = f"at most {most_bytes / 1e6:.0f} MB", f"{found_bytes / 1e6:.0f} MB"
    return Check(name, wanted, found, found_bytes <= most_bytes)

"""Takes resources from processes: space of file systems, open files, memory. A refusal in the log shows the effect."""

from __future__ import annotations

import resource
from collections.abc import Callable, Collection
from typing import Final

import psutil

from clonos_chaos.real.volumes import Volumes
from clonos_chaos.scenario.scenario import FaultKind, FaultSpec

REFUSALS: Final = {
    FaultKind.VOLUME_FULL: ("No space left on device", "disk is full"),
    FaultKind.FILE_TABLE_FULL: ("Too many open files",),
    FaultKind.MEMORY_LIMIT: ("MemoryError", "out of memory", "Cannot allocate memory", "can't start new thread"),
}
"""Words of the log that show that a resource was refused. Without memory a process may also die without a word."""

Complaints = Callable[[Collection[str]], int]


def exhaust(
    fault: FaultSpec, pids: Collection[int], volumes: Volumes | None, complaints: Complaints
) -> tuple[Callable[[], None], Callable[[], None], Callable[[], int]]:
    """Begins a fault; returns how to end it, how to renew it, and how many refusals there were since."""
    words = REFUSALS[fault.kind]
    before = complaints(words)

    def refused() -> int:
        return complaints(words) - before

    if fault.kind is FaultKind.VOLUME_FULL:
        assert volumes is not None, "a scenario with full file systems has mounted them"
        volumes.fill(fault.volume)
        return lambda: volumes.free(fault.volume), lambda: volumes.fill(fault.volume), refused
    limit, taken = (
        (resource.RLIMIT_NOFILE, _files) if fault.kind is FaultKind.FILE_TABLE_FULL else (resource.RLIMIT_AS, _bytes)
    )
    running = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    limits = {pid: found for pid in pids if (found := _lower(pid, limit, taken, fault.more_bytes)) is not None}

    def refused_or_died() -> int:
        return refused() + sum(not process.is_running() for process in running)

    return lambda: _restore(limit, limits), lambda: None, refused_or_died


def _files(process: psutil.Process) -> int:
    return int(process.num_fds())


def _bytes(process: psutil.Process) -> int:
    return int(process.memory_info().vms)


def _lower(pid: int, limit: int, taken: Callable[[psutil.Process], int], more: int) -> tuple[int, int] | None:
    """Lowers a soft limit to what a process has taken; returns the limits before, or None for a dead process."""
    try:
        before = resource.prlimit(pid, limit)
        resource.prlimit(pid, limit, (taken(psutil.Process(pid)) + more, before[1]))
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None
    return before


def _restore(limit: int, limits: dict[int, tuple[int, int]]) -> None:
    for pid, before in limits.items():
        try:
            resource.prlimit(pid, limit, before)
        except ProcessLookupError:  # it has died meanwhile
            continue

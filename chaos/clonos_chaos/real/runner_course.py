"""Course of a run of the shipped job: input flows at a fixed rate, faults are injected, input rests, the job ends.

While input rests, the next checkpoint must truncate logs and spill to their size before the first record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final

import psutil

from clonos.core.model.progress import TaskCounter
from clonos.status import Status
from clonos_chaos.scenario.run_record import task_retained_bytes
from clonos_chaos.scenario.scenario_gate import Gate

QUIESCENT_S: Final = 0.5
"""Time for which input continues after the last fault."""

CHECKPOINTS: Final = 2
"""Checkpoints to wait for without input; the first one may have begun before."""

REST_S_MAX: Final = 60.0
LOOK_INTERVAL_S_MAX: Final = 1.0
WAIT_S_MAX: Final = 30.0
"""Wait for a fault whose trigger does not fire, once all input was read."""

THREADS_MORE: Final = 6
"""Threads that a process with the same tasks may gain: it may host another standby or keeper."""

FILES_MAX: Final = 40
FILES_OF_PEER_MAX: Final = 10
"""Files per peer: connections are made when they are first needed, two to a peer."""


class CoursePhase(Enum):
    """Phase of a run."""

    STARTING = auto()
    FEEDING = auto()
    RESTING = auto()
    ENDING = auto()


@dataclass(frozen=True, slots=True)
class Holdings:
    """Threads and open files of a process, and the tasks that it runs."""

    tasks: tuple[str, ...]
    threads: int
    files: int


@dataclass
class Course:
    """Course of a run, advanced by frequent calls of ``look``. ``remainder``: excess resources at the end.

    ``local_root``: of the local folders of the run's processes.
    """

    gate: Gate
    local_root: Path
    records: int
    per_second: float
    retained_bytes_max: int
    phase: CoursePhase = CoursePhase.STARTING
    remainder: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._looked_s = self._quiescent_s = self._rest_s = 0.0
        self._due = 0.0
        self._waited_s = 0.0  # with all input read, for a fault whose trigger does not fire
        self._retained_before = 0
        self._checkpoint = 0
        self._activity: object = None
        self._before: dict[int, Holdings] = {}

    def note_holdings(self, status: Status) -> None:
        """Records the holdings before the first fault."""
        if not self._before:
            self._before = holdings(status)

    def look(self, now_s: float, status: Status, is_live: bool, is_over: bool) -> None:
        """Advances the course. ``is_over``: no fault is pending or active."""
        if self.phase is CoursePhase.STARTING and is_live:
            self.phase, self._looked_s, self._retained_before = CoursePhase.FEEDING, now_s, retained_bytes(status)
        elif self.phase is CoursePhase.FEEDING:
            self._feed(now_s, is_live and is_over)
        elif self.phase is CoursePhase.RESTING:
            self._rest(now_s, status)

    def _feed(self, now_s: float, is_quiescent: bool) -> None:
        """Opens the gate at the given rate; no input flows while the driver is dead."""
        elapsed_s, self._looked_s = min(LOOK_INTERVAL_S_MAX, now_s - self._looked_s), now_s
        self._due += elapsed_s * self.per_second
        self.gate.open_to(min(self.records, int(self._due)))
        if self._due >= self.records:
            self._waited_s += elapsed_s
        self._quiescent_s = (self._quiescent_s or now_s) if is_quiescent else 0.0
        if (self._quiescent_s and now_s - self._quiescent_s >= QUIESCENT_S) or self._waited_s > WAIT_S_MAX:
            self.phase, self._rest_s, self._activity = CoursePhase.RESTING, now_s, None

    def _rest(self, now_s: float, status: Status) -> None:
        activity = [(task.name, task.incarnation, task.counters.get(TaskCounter.RECORDS_IN)) for task in status.tasks]
        if activity != self._activity:
            self._activity, self._checkpoint = activity, status.checkpoint
        is_late = now_s - self._rest_s > REST_S_MAX
        if status.checkpoint < self._checkpoint + CHECKPOINTS and not is_late:
            return
        too_much = self._too_much(status)
        if too_much and not is_late:
            return
        if status.checkpoint < self._checkpoint + CHECKPOINTS:
            too_much.append(f"no {CHECKPOINTS} checkpoints within {REST_S_MAX:g} s without input")
        self.remainder = too_much
        self.phase = CoursePhase.ENDING
        self.gate.end()

    def _too_much(self, status: Status) -> list[str]:
        found = []
        retained, most = retained_bytes(status), self._retained_before + self.retained_bytes_max
        if retained > most:
            by_task = {task.name: task_retained_bytes(task.counters) for task in status.tasks}
            found.append(f"{retained} bytes in logs, {self._retained_before} at the start: {by_task}")
        for slot in status.slots:
            spilled = list((self.local_root / f"{slot.slot:016x}" / "spill").glob("*.segment"))
            if any(not path.is_symlink() for path in spilled):
                found.append(f"{len(spilled)} files of spill in slot {slot.slot:x}")
        for pid, now in holdings(status).items():
            before = self._before.get(pid, now)
            has_more_threads = now.threads > before.threads + THREADS_MORE and now.tasks == before.tasks
            if has_more_threads or now.files > FILES_MAX + FILES_OF_PEER_MAX * (len(status.slots) + 1):
                found.append(f"process {pid} had {before} before the faults and has {now}")
        return found


def retained_bytes(status: Status) -> int:
    """Returns the bytes in the logs of all tasks."""
    return sum(task_retained_bytes(task.counters) for task in status.tasks)


def holdings(status: Status) -> dict[int, Holdings]:
    """Returns the holdings of the living slot processes."""
    found = {}
    for slot in status.slots:
        try:
            process = psutil.Process(slot.pid)
            tasks = tuple(task.name for task in status.tasks if task.slot == slot.slot)
            found[slot.pid] = Holdings(tasks, process.num_threads(), process.num_fds())
        except psutil.Error:  # it has died meanwhile
            continue
    return found

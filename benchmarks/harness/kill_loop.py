"""Kill loop: kills tasks of a running job with SIGKILL, each time once it has recovered, and records recoveries."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from clonos.core.coordinator.failure_policy import EPOCHS_REMEMBERED
from clonos.demo.kills import executor_pids, is_live
from clonos.job import Handle
from clonos.status import RecoveryState, Status, TaskState

QUIESCENT_CHECKPOINTS: Final = EPOCHS_REMEMBERED
"""Checkpoints from the recovery to the next kill, which then comes anywhere in an epoch. With fewer, two deaths of a
task look like a poison record, and the successor replays in single-step mode."""

LOOK_EVERY_S: Final = 0.02
OVERTIME_S: Final = 120.0
"""Time after the end of the input; a job that still runs then hangs."""

Recoveries = dict[tuple[str, int], RecoveryState]


class Overdue(Exception):
    """The job makes no progress."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill. ``at_ns``: monotonic, just before the signal. ``tasks``: of the killed processes, the targets first."""

    tasks: tuple[str, ...]
    at_ns: int
    wall_ns: int
    incarnations: tuple[int, ...]


@dataclass
class KillLoop:
    """Series of kills. ``steps``: one task of each is killed at a time, or the executor of the first step's task.
    ``is_ready``: condition of the job before the first kill."""

    handle: Handle
    steps: tuple[str, ...]
    standbys: int
    seconds_max: float
    epoch_s: int = 1
    is_executor: bool = False
    is_hot: bool = False  # the tasks of ``steps`` must have hot standbys
    is_ready: Callable[[], bool] = lambda: True
    _slots_most: int = 0

    def kill_repeatedly(self, kills: int) -> tuple[list[Kill], Recoveries]:
        """Kills ``kills`` times, if the input lasts; returns after the last recovery. Raises Overdue."""
        self._deadline_s = time.monotonic() + self.seconds_max + OVERTIME_S
        done: list[Kill] = []
        recoveries: Recoveries = {}
        while len(done) < kills and self._becomes_quiescent(recoveries):
            time.sleep(len(done) / kills * self.epoch_s)
            done.append(self._kill(self.handle.status()))
            while not _is_replaced(self.handle.status(), done[-1]):
                self._look_again()
        return done, recoveries

    def finish(self, recoveries: Recoveries) -> Status:
        """Waits for the end of the job; returns its last status. Raises Overdue."""
        try:
            result = self.handle.wait(max(1.0, self._deadline_s - time.monotonic()))
        except TimeoutError:
            raise Overdue(f"the job still runs {OVERTIME_S:.0f} s after the end of its input") from None
        _note(recoveries, result.status)
        return result.status

    def _becomes_quiescent(self, recoveries: Recoveries) -> bool:
        """Waits until all tasks are live, their standbys could take over, and some checkpoints have completed since.

        Returns False if the input ends before.
        """
        quiescent_from: int | None = None
        while True:
            status = self.handle.status()
            _note(recoveries, status)
            if status.phase == "ended" or any(task.phase == "final" for task in status.tasks):
                return False
            is_whole = is_live(status) and all(map(self._has_standbys, status.tasks))
            if not is_whole or not self._is_spread(status) or not self.is_ready():
                quiescent_from = None
            elif quiescent_from is None:
                quiescent_from = status.checkpoint
            elif status.checkpoint >= quiescent_from + QUIESCENT_CHECKPOINTS:
                return True
            self._look_again()

    def _is_spread(self, status: Status) -> bool:
        """Returns whether a killed executor was replaced. Until then standbys and keepers share the executor of their
        tasks, and one kill would end all three."""
        self._slots_most = max(self._slots_most, len(status.slots))
        is_full = len(status.slots) == self._slots_most
        return not self.is_executor or (is_full and len({slot.domain for slot in status.slots}) > 1)

    def _has_standbys(self, task: TaskState) -> bool:
        is_hot = self.is_hot and task.name.startswith(self.steps)
        return task.standbys >= self.standbys and (not is_hot or task.hot_standbys > 0)

    def _look_again(self) -> None:
        if time.monotonic() > self._deadline_s:
            raise Overdue("a killed task does not recover, or its standbys do not come back")
        time.sleep(LOOK_EVERY_S)

    def _kill(self, status: Status) -> Kill:
        affected = [_victim(status, step) for step in self.steps]
        pids = sorted({task.pid for task in affected})
        if self.is_executor:
            domain = affected[0].domain
            affected += [task for task in status.tasks if task.domain == domain and task not in affected]
            pids = executor_pids([slot.pid for slot in status.slots if slot.domain == domain])
        else:
            affected += [task for task in status.tasks if task.pid in pids and task not in affected]
        at_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return Kill(tuple(task.name for task in affected), at_ns, wall_ns, tuple(task.incarnation for task in affected))


def _note(recoveries: Recoveries, status: Status) -> None:
    recoveries.update({(one.task, one.failed_incarnation): one for one in status.recoveries})


def _victim(status: Status, step: str) -> TaskState:
    """Returns a task of the step, if possible the only task in its process."""
    pids = Counter(task.pid for task in status.tasks)
    return min((task for task in status.tasks if task.name.startswith(step)), key=lambda task: pids[task.pid])


def _is_replaced(status: Status, kill: Kill) -> bool:
    now = {task.name: task.incarnation for task in status.tasks}
    return all(now[name] > before for name, before in zip(kill.tasks, kill.incarnations, strict=True))

"""Kills of a running job, with SIGKILL, each when the job is whole again, and what its status says of recoveries."""

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
"""Completed from when the job is whole again to the next kill, which then comes anywhere in an epoch: in fewer, two
deaths of a task are taken for the work of a record, and the successor is cautious."""

LOOK_EVERY_S: Final = 0.02
OVERTIME_S: Final = 120.0
"""Behind the end of the input; a job that still runs then hangs."""

Recoveries = dict[tuple[str, int], RecoveryState]


class Overdue(Exception):
    """The job does not get on."""


@dataclass(frozen=True, slots=True)
class Kill:
    """``at_ns``: monotonic, just before the signal. ``tasks``: whose processes were ended, the named ones first."""

    tasks: tuple[str, ...]
    at_ns: int
    wall_ns: int
    incarnations: tuple[int, ...]


@dataclass
class KillLoop:
    """A series of kills. ``steps``: one task of each is killed at a time, or the executor of the first with all in it.
    ``is_ready``: of the job's own, before the first kill."""

    handle: Handle
    steps: tuple[str, ...]
    standbys: int
    seconds_max: float
    epoch_s: int = 1
    is_executor: bool = False
    is_hot: bool = False  # the standbys of ``steps`` have to follow step by step
    is_ready: Callable[[], bool] = lambda: True
    _slots_most: int = 0

    def kill_repeatedly(self, kills: int) -> tuple[list[Kill], Recoveries]:
        """So many kills, if the input lasts; returns behind the last recovery. Overdue."""
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
        """The last status, when the job is done. Overdue."""
        try:
            result = self.handle.wait(max(1.0, self._deadline_s - time.monotonic()))
        except TimeoutError:
            raise Overdue(f"the job runs {OVERTIME_S:.0f} s longer than its input lasts") from None
        _note(recoveries, result.status)
        return result.status

    def _becomes_quiescent(self, recoveries: Recoveries) -> bool:
        """Waits until every task lives, its standby could take over, and some checkpoints are complete since.

        False: the input has ended before.
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
        """Whether what replaces an executor has come. Until then standbys and keepers are with their tasks, and a death
        of all three is none of a single executor."""
        self._slots_most = max(self._slots_most, len(status.slots))
        is_full = len(status.slots) == self._slots_most
        return not self.is_executor or (is_full and len({slot.domain for slot in status.slots}) > 1)

    def _has_standbys(self, task: TaskState) -> bool:
        is_hot = self.is_hot and task.name.startswith(self.steps)
        return task.standbys >= self.standbys and (not is_hot or task.hot_standbys > 0)

    def _look_again(self) -> None:
        if time.monotonic() > self._deadline_s:
            raise Overdue("a task that was killed does not come back, or the job does not become whole again")
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
    """A task of the step, if possible one that has its process for itself."""
    pids = Counter(task.pid for task in status.tasks)
    return min((task for task in status.tasks if task.name.startswith(step)), key=lambda task: pids[task.pid])


def _is_replaced(status: Status, kill: Kill) -> bool:
    now = {task.name: task.incarnation for task in status.tasks}
    return all(now[name] > before for name, before in zip(kill.tasks, kill.incarnations, strict=True))

"""Kills of the demo: which tasks die by SIGKILL, and how each kill affects the other tasks.

A kill waits until every task is live and has a restored standby, the previous recovery has ended, and a few checkpoints
have completed since. It ends the processes of the chosen slots, or a Spark executor with all its slots.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from clonos.core.model.progress import SETTLED_PHASES
from clonos.demo.wordcount import ASK, COUNT
from clonos.io.system.wall_clock import wall_ns
from clonos.status import Status, TaskState

CHECKPOINTS_BETWEEN_KILLS: Final = 2
"""Checkpoints that complete after a recovery before the next kill."""

STANDBY_TIMEOUT_S: Final = 60.0
"""Seconds after which a kill no longer waits for standbys to be restored."""

EXECUTOR_CLASS: Final = "CoarseGrainedExecutorBackend"
ANCESTORS_MAX: Final = 4


class KillKind(StrEnum):
    """Target of a kill."""

    MAP = "map"
    WINDOW = "window"
    LINKED = "linked"  # a map task and a window task that it feeds, together
    EXECUTOR = "executor"


@dataclass(frozen=True, slots=True)
class Kill:
    """One killed task. ``at_ns`` is the wall clock time just before the signal, in ns since 1970."""

    task: str
    kind: KillKind
    incarnation: int
    at_ns: int


@dataclass(slots=True)
class Kills:
    """Sequence of kills. Call ``look`` often, with the latest status."""

    kinds: list[KillKind]
    chosen: Callable[[KillKind, Sequence[TaskState]], list[TaskState]] | None = None  # ``choose``, unless it is given
    done: list[Kill] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)  # healthy tasks whose process or incarnation has changed
    _before: dict[str, TaskState] = field(default_factory=dict)
    _killed: frozenset[str] = frozenset()
    _ready_at_checkpoint: int | None = None  # last completed checkpoint when the job became ready for the next kill
    _waiting_since_s: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Returns whether every kill is made and recovered from."""
        return not self.kinds and not self._killed

    def look(self, status: Status) -> str | None:
        """Checks the last kill or makes the next one. Returns the event to show, if any."""
        if self._killed:
            return self._judge(status)
        if not self.kinds or not self._is_ready(status):
            return None
        return self._kill(self.kinds.pop(0), status)

    def _is_ready(self, status: Status) -> bool:
        if not is_live(status):
            self._ready_at_checkpoint, self._waiting_since_s = None, 0.0
            return False
        if not self._waiting_since_s:
            self._waiting_since_s = time.monotonic()
        is_whole = all(task.standbys for task in status.tasks)
        if not is_whole and time.monotonic() - self._waiting_since_s < STANDBY_TIMEOUT_S:
            return False
        if self._ready_at_checkpoint is None:
            self._ready_at_checkpoint = status.checkpoint
        return status.checkpoint >= self._ready_at_checkpoint + CHECKPOINTS_BETWEEN_KILLS

    def _kill(self, kind: KillKind, status: Status) -> str:
        chosen = {task.pid for task in (self.chosen or choose)(kind, status.tasks)}
        # A promoted standby may share the process of another task.
        victims = [task for task in status.tasks if task.pid in chosen]
        self._before = {task.name: task for task in status.tasks}
        self._killed = frozenset(task.name for task in victims)
        pids = sorted({task.pid for task in victims})
        if kind is KillKind.EXECUTOR:
            pids = executor_pids([slot.pid for slot in status.slots if slot.domain == victims[0].domain])
        at_ns = wall_ns()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.done += [Kill(task.name, kind, task.incarnation, at_ns) for task in victims]
        names = ", ".join(task.name for task in victims)
        where = f" {victims[0].domain} with" if kind is KillKind.EXECUTOR else ""
        return f"SIGKILL {kind}:{where} {names} (pid {', '.join(map(str, pids))})"

    def _judge(self, status: Status) -> str | None:
        now = {task.name: task for task in status.tasks}
        has_moved = all(now[name].incarnation > self._before[name].incarnation for name in self._killed)
        if not has_moved or not is_live(status):
            return None
        for name, before in self._before.items():
            if name not in self._killed and (now[name].pid, now[name].incarnation) != (before.pid, before.incarnation):
                self.disturbed.append(name)
        healthy = len(self._before) - len(self._killed)
        event = f"recovered {', '.join(sorted(self._killed))}; {healthy} healthy tasks"
        event += " kept their processes and incarnations" if not self.disturbed else f", disturbed: {self.disturbed}"
        self._killed, self._ready_at_checkpoint, self._waiting_since_s = frozenset(), None, 0.0
        return event


def is_live(status: Status) -> bool:
    """Returns whether every task runs and no recovery is in progress."""
    phases = {task.phase for task in status.tasks}
    # A task that failed again has an unfinished recovery before its last one.
    latest = {one.task: one for one in status.recoveries}
    return bool(phases) and phases <= SETTLED_PHASES and all(one.is_over for one in latest.values())


def choose(kind: KillKind, tasks: Sequence[TaskState]) -> list[TaskState]:
    """Chooses the tasks of a kill: the first task of the step, or all tasks of the executor with the most."""
    first_map = next(task for task in tasks if step_of(task.name) == ASK)
    windows = [task for task in tasks if step_of(task.name) == COUNT]
    if kind is KillKind.MAP:
        return [first_map]
    if kind is KillKind.WINDOW:
        return windows[:1]
    if kind is KillKind.LINKED:
        return [first_map, windows[-1]]
    fullest = max(sorted({task.domain for task in tasks}), key=lambda name: sum(t.domain == name for t in tasks))
    return [task for task in tasks if task.domain == fullest]


def step_of(task_name: str) -> str:
    """Returns the first step of a task's chain."""
    return re.split(r"[^A-Za-z0-9_.-]", task_name)[0]


def executor_pids(slot_pids: Sequence[int]) -> list[int]:
    """Returns the pid of the executor's JVM, whose workers die with it; without a JVM the pids of all its slots."""
    for slot_pid in slot_pids:
        pid = slot_pid
        for _ in range(ANCESTORS_MAX):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
                status = Path(f"/proc/{pid}/stat").read_text("utf-8")
            except OSError:
                break
            if EXECUTOR_CLASS in command:
                return [pid]
            pid = int(status.rpartition(")")[2].split()[1])
    return sorted(slot_pids)

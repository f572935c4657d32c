"""Counters of a job that never fall, made of statuses in which the counters of a task begin again.

A counter of the job's start repeats values while a task replays, so the growth of the highest value counts. When the
widths of the job change, the first task of a step takes over the records of those that run no more, which have been
counted, and logs begin again. A counter of an incarnation begins at 0 with each one, so the growth counts. ``add`` must
see each status about once per second: what a task counted between the last status and its end is missing from the
counters of incarnations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from clonos.core.coordinator.coordinator_effects import Milestone
from clonos.core.model.metric_series import Metric
from clonos.core.model.progress import TaskCounter
from clonos.status import CheckpointState, Rate, RecoveryState, Status, TaskState

SINCE_START: Final = (
    TaskCounter.RECORDS_IN,
    TaskCounter.ROWS_WRITTEN,
    TaskCounter.DETERMINANT_BYTES,
)
SINCE_INCARNATION: Final = (
    TaskCounter.RECORDS_OUT,
    TaskCounter.REPLAYED_RECORDS,
    TaskCounter.REPLAYED_CALLS,
    TaskCounter.EXECUTED_CALLS,
    TaskCounter.BUSY_US,
    TaskCounter.BLOCKED_US,
)
ZEROS: Final = (
    (TaskCounter.REPLAYED_RECORDS, 0),
    (TaskCounter.REPLAYED_CALLS, 0),
    (TaskCounter.EXECUTED_CALLS, 0),
)
"""Counters that a task reports from the first time on."""

CHECKPOINT_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RECOVERY_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
NANOSECONDS_PER_S: Final = 1e9
PHASES: Final = tuple(milestone.value for milestone in Milestone if milestone is not Milestone.FAILED)
"""Phases of a recovery, each by the milestone that ends it."""


class DurationHistogram:
    """Histogram of durations in seconds; ``buckets`` as Prometheus has them."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, value_s: float) -> None:
        """Adds a duration; a negative one, after a step of the wall clock, counts as 0."""
        value_s = max(0.0, value_s)
        self._counts[bisect_left(self._bounds_s, value_s)] += 1
        self.sum_s += value_s

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds as text, the last one infinite, and the number of durations up to each."""
        found, total = [], 0
        for bound, count in zip((*map(str, self._bounds_s), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class GrowingHistogram:
    """Histogram of a task over all its incarnations, each of which begins at 0."""

    __slots__ = ("metric", "numbers", "_incarnation", "_counted")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.numbers = [0.0] * (len(metric.bounds) + 2)  # the sum, then each bucket
        self._incarnation, self._counted = -1, self.numbers

    def add(self, incarnation: int, numbers: Sequence[float]) -> None:
        """Adds what an incarnation has counted since its last status."""
        before = self._counted if incarnation == self._incarnation else [0.0] * len(numbers)
        growth = [max(0.0, now - then) for now, then in zip(numbers, before, strict=True)]
        self.numbers = [total + more for total, more in zip(self.numbers, growth, strict=True)]
        self._incarnation, self._counted = incarnation, list(numbers)


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float | None:
    """Returns a quantile of a histogram, linear within a bucket as in Prometheus; None without values."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    below = 0.0
    for place, count in enumerate(counts[:-1]):
        if count and below + count >= wanted:
            low = bounds[place - 1] if place else 0.0
            return low + (bounds[place] - low) * (wanted - below) / count
        below += count
    return bounds[-1]


@dataclass(slots=True)
class TaskTotals:
    """Totals of one task. ``incarnation``: of the last status, with what it had counted. ``highest``: of the counters
    of the job's start."""

    incarnation: int = -1
    counted: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=lambda: dict[str, int](ZEROS))
    latencies: dict[str, GrowingHistogram] = field(default_factory=dict)
    busy: Rate = field(default_factory=Rate)
    blocked: Rate = field(default_factory=Rate)

    def add(self, task: TaskState, now_s: float) -> None:
        """Adds the counters of a status."""
        if task.incarnation != self.incarnation:
            self.incarnation, self.counted = task.incarnation, {}
        for name in SINCE_START:
            if (value := task.counters.get(name)) is not None:
                growth = max(0, value - self.highest.get(name, 0))
                self.totals[name] = self.totals.get(name, 0) + growth
                self.highest[name] = self.highest.get(name, 0) + growth
        for name in SINCE_INCARNATION:
            if (value := task.counters.get(name)) is not None:
                growth = max(0, value - self.counted.get(name, 0))
                self.totals[name] = self.totals.get(name, 0) + growth
                self.counted[name] = value
        for family in task.latencies:
            found = self.latencies.setdefault(family.metric.name, GrowingHistogram(family.metric))
            found.add(task.incarnation, family.series[0].numbers)
        if TaskCounter.BUSY_US in task.counters:
            self.busy.add(task.incarnation, task.counters[TaskCounter.BUSY_US], now_s)
            self.blocked.add(task.incarnation, task.counters.get(TaskCounter.BLOCKED_US, 0), now_s)


class JobCounters:
    """Totals of all tasks, and what checkpoints and recoveries took. One thread at a time calls ``add``."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskTotals] = {}
        self.checkpoint_durations = DurationHistogram(CHECKPOINT_BOUNDS_S)
        self.checkpoints = Counter[str](completed=0, abandoned=0)
        self.last_completed_ns = 0
        self.last_size_bytes: int | None = None
        self.recovery_durations = DurationHistogram(RECOVERY_BOUNDS_S)
        # There from the start, at 0: a rate sees no growth in a series that begins with its first value.
        self.recovery_phases = {phase: DurationHistogram(RECOVERY_BOUNDS_S) for phase in PHASES}
        self.recoveries = Counter[str]()  # by task
        self.moves = Counter[str]()  # by task
        self._checkpoints_seen: set[int] = set()  # of those that are over
        self._milestones_seen: dict[tuple[str, int], int] = {}  # how many, by task and first milestone
        self.rollbacks = 0
        self._generation = 0
        self._running = frozenset[str]()  # the tasks of the last status that had any

    def add(self, status: Status, checkpoints: tuple[CheckpointState, ...], now_s: float) -> None:
        """Adds a status, and the last checkpoints."""
        self._follow_widths(frozenset(task.name for task in status.tasks))
        for task in status.tasks:
            self.tasks.setdefault(task.name, TaskTotals()).add(task, now_s)
        for checkpoint in checkpoints:
            if not checkpoint.is_pending and checkpoint.number not in self._checkpoints_seen:
                self._add_checkpoint(checkpoint)
        self._checkpoints_seen &= {checkpoint.number for checkpoint in checkpoints}
        for recovery in status.recoveries:
            if recovery.reached:
                self._add_recovery(recovery)
        for move in status.moves:
            key = move.task, min(move.reached.values(), default=0)
            self.moves[move.task] += key not in self._milestones_seen
            self._milestones_seen[key] = 1
        self.rollbacks += 0 < self._generation < status.generation
        self._generation = status.generation

    def _follow_widths(self, running: frozenset[str]) -> None:
        """Begins the counters again that other widths begin again."""
        before, self._running = self._running, running or self._running
        if not before or not running or before == running:
            return
        for totals in self.tasks.values():
            totals.highest.pop(TaskCounter.DETERMINANT_BYTES, None)
        for name in before - running:
            records = self.tasks[name].highest.pop(TaskCounter.RECORDS_IN, 0)
            first = self.tasks.get(f"{name.rpartition('/')[0]}/0")
            if first is not None:
                first.highest[TaskCounter.RECORDS_IN] = first.highest.get(TaskCounter.RECORDS_IN, 0) + records

    def _add_checkpoint(self, checkpoint: CheckpointState) -> None:
        self._checkpoints_seen.add(checkpoint.number)
        done_ns = checkpoint.completed_ns
        if done_ns is None:
            self.checkpoints["abandoned"] += 1
            return
        self.checkpoints["completed"] += 1
        if done_ns >= self.last_completed_ns:
            self.last_completed_ns, self.last_size_bytes = done_ns, checkpoint.size_bytes
        self.checkpoint_durations.add((done_ns - checkpoint.begun_ns) / NANOSECONDS_PER_S)

    def _add_recovery(self, recovery: RecoveryState) -> None:
        """Adds the phases that are new: each lasts from the milestone before it to its own."""
        key = recovery.task, next(iter(recovery.reached.values()))
        if key not in self._milestones_seen:
            self.recoveries[recovery.task] += 1
        seen = self._milestones_seen.get(key, 1)
        self._milestones_seen[key] = len(recovery.reached)
        for phase, length_ns in list(recovery.phases_ns.items())[seen - 1 :]:
            self.recovery_phases[phase].add(length_ns / NANOSECONDS_PER_S)
            if phase == Milestone.REPLAYED and (duration_ns := recovery.duration_ns) is not None:
                self.recovery_durations.add(duration_ns / NANOSECONDS_PER_S)

"""Status of a running job: the source of the live display, of the page, of the metrics file and of ``Handle.status()``.

``Rate`` makes rates of its counters.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Final

from clonos.core.model.metric_series import LATE_RECORDS, Metric, MetricFamily, MetricKind, MetricSeries, late_records
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.printable import escaped

RATE_SPAN_S: Final = 2.0


class Phase(StrEnum):
    """Phase of a job."""

    STARTING = "starting"  # slots start and register
    RUNNING = "running"
    STOPPING = "stopping"  # the final checkpoint is being taken
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class TaskState:
    """State of one task, from the current view and from the last status that its slot sent.

    ``slot`` and ``pid``: 0 while the task waits for a slot. ``counters``: by name, see ``TaskCounter``
    (docs/operations.md lists them).
    """

    name: str
    incarnation: int
    slot: int
    pid: int
    domain: str
    phase: TaskPhase
    counters: Mapping[str, int]
    standbys: int  # that hold a state and could take over now
    keepers: int  # that hold the whole log of the task
    hot_standbys: int = 0  # that replay each step as it happens
    hot_key: str = ""  # of which most of its latest records are; empty if no key stands out
    hot_key_share: float = 0.0  # of its latest records
    metrics: tuple[MetricFamily, ...] = ()  # of user code, and late records, see ``ShownMetrics``
    latencies: tuple[MetricFamily, ...] = ()  # histograms since the incarnation began
    losses_survived: int | None = None  # further losses of domains without a loss of output; None: any number

    @property
    def late_records(self) -> dict[str, int]:
        """Late records by step, without steps that have none."""
        return {escaped(step): count for step, count in late_records(self.metrics).items()}


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One series of a metric of user code in one task. ``value``: of a histogram the mean of its values.

    ``count``, ``sum`` and ``buckets`` are those of a histogram: ``buckets`` has, per upper bound, how many values are
    not above it.
    """

    name: str
    kind: MetricKind
    task: str
    labels: Mapping[str, str]
    value: float
    count: int | None = None
    sum: float | None = None
    buckets: Mapping[float, int] | None = None


def metric_values(tasks: Iterable[TaskState]) -> list[MetricValue]:
    """Returns the metrics of user code, task by task."""
    return [
        _value(task.name, found.metric, each)
        for task in tasks
        for found in task.metrics
        if found.metric.name != LATE_RECORDS.name
        for each in found.series
    ]


def _value(task: str, metric: Metric, series: MetricSeries) -> MetricValue:
    labels = dict(zip(metric.label_names, series.labels, strict=True))
    if metric.kind is not MetricKind.HISTOGRAM:
        return MetricValue(metric.name, metric.kind, task, labels, series.numbers[0])
    total, counts = series.numbers[0], list(accumulate(map(int, series.numbers[1:])))
    buckets = dict(zip((*metric.bounds, math.inf), counts, strict=True))
    mean = total / counts[-1] if counts[-1] else 0.0
    return MetricValue(metric.name, metric.kind, task, labels, mean, counts[-1], total, buckets)


def by_step(tasks: Iterable[TaskState], counter: str) -> Counter[str]:
    """Returns a counter summed over the tasks of each step, in their order."""
    found: Counter[str] = Counter()
    for task in tasks:
        found[task.name.rpartition("/")[0]] += task.counters.get(counter, 0)
    return found


def late_by_step(tasks: Iterable[TaskState]) -> Counter[str]:
    """Returns the late records of each step that has any, summed over tasks, in their order."""
    found: Counter[str] = Counter()
    for task in tasks:
        found.update(task.late_records)
    return found


def phase_text(phase: str, counters: Mapping[str, int]) -> str:
    """Returns the phase of a task, with how much of its state it has read from the store while it does that."""
    permille = counters.get(TaskCounter.RESTORED_PERMILLE)
    return phase if permille is None else f"{phase} {permille / 10:.0f}%"


def late_text(late: Mapping[str, int]) -> str:
    """Returns the counts of late records by step, as in "sessions 12, merge 3"."""
    return ", ".join(f"{step} {count:,}" for step, count in late.items())


@dataclass(frozen=True, slots=True)
class SlotState:
    """One living slot. ``domain``: failure domain, the processes that fail together with it.

    ``cpu_s``: processor time since its process began. ``memory_bytes``: its memory in RAM; 0 if unknown.
    """

    slot: int
    pid: int
    domain: str
    host: str
    cpu_s: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """One recovery of one task. ``reached``: wall clock of each milestone in nanoseconds since the Unix epoch, in
    order."""

    task: str
    failed_incarnation: int
    incarnation: int  # of the successor; 0 until it is placed
    cause: str
    reached: Mapping[str, int]
    replayed_records: int = 0
    replayed_calls: int = 0  # of external systems, whose outcomes came from the log
    executed_calls: int = 0  # by the successor until it had caught up

    @property
    def is_over(self) -> bool:
        """True when the task has caught up."""
        return "caught_up" in self.reached

    @property
    def duration_ns(self) -> int | None:
        """How long the recovery took: from the first milestone until the task was live again, with its log replayed;
        None before. Catching up with the input that came meanwhile is not in it."""
        phases = self.phases_ns
        return sum(phases.values()) - phases.get("caught_up", 0) if "replayed" in self.reached else None

    @property
    def phases_ns(self) -> dict[str, int]:
        """Length of each phase by the milestone that ends it, in order: the one figure of the page, ``clonos status``,
        the metrics and the history. Those up to ``replayed`` sum to ``duration_ns``."""
        return {name: at_ns - before_ns for (_, before_ns), (name, at_ns) in pairwise(self.reached.items())}


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """One checkpoint. Times: wall clock in nanoseconds since the Unix epoch. ``completed_ns`` is None while it is
    pending, and if it was abandoned."""

    number: int
    begun_ns: int
    completed_ns: int | None
    is_pending: bool
    size_bytes: int | None = None  # None: not known


@dataclass(frozen=True, slots=True)
class SavepointProgress:
    """Savepoint that is being written. ``left_s``: about how long the rest takes; None before enough is done to tell.

    ``text``: one line that says so.
    """

    path: str
    objects_done: int
    objects_total: int
    left_s: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ScalingAdvice:
    """Width that a step should have, with the reason in a sentence. ``wanted`` is ``width`` if that is right."""

    step: str
    width: int
    wanted: int
    text: str


class RescalePhase(StrEnum):
    """How far a change of the widths or places of a running job is."""

    ORDERING = "ordering"  # the processes of new tasks start
    WARMING = "warming"  # the state of the next tasks is read while those before run
    CUTTING = "cutting"  # a checkpoint is awaited at which all tasks stand
    SWITCHING = "switching"  # the tasks begin again, with other widths or in other slots
    DONE = "done"
    REFUSED = "refused"  # or given up, before anything had changed


RESCALE_TEXTS: Final[Mapping[RescalePhase, str]] = {
    RescalePhase.ORDERING: "processes for new tasks start",
    RescalePhase.WARMING: "the state of the next tasks is being read while those before run",
    RescalePhase.CUTTING: "all tasks are coming to the checkpoint at which they change",
    RescalePhase.SWITCHING: "the tasks begin again from the checkpoint",
    RescalePhase.DONE: "the tasks run again",
}

RESCALE_ENDED_TEXTS: Final[Mapping[RescalePhase, str]] = {
    RescalePhase.ORDERING: "its numbers of tasks have not changed",
    RescalePhase.CUTTING: "its numbers of tasks have not changed, unless its last checkpoint was just being completed;"
    " a resume says how many tasks each step has",
    RescalePhase.SWITCHING: "its last checkpoint has the change, and a resume goes on with it",
}
"""What becomes of a change by the phase in which its job has ended."""

REQUESTS_PER_DRIVER: Final = 1_000_000
"""Numbers of requests of one driver: the term of the driver, times this, comes before the first."""


@dataclass(frozen=True, slots=True)
class RescaleState:
    """Last change of widths or places that was asked for. ``widths``: numbers of tasks by vertex that differ from
    those now; none once it has ended. ``text``: the phase in words, or why nothing changes. ``number``: of the request;
    0 if an earlier driver began it. ``refusals``: why the last requests that came to nothing did, by their numbers.
    ``checkpoint``: the one at which all tasks stop, from when it is known until they begin again; else 0."""

    number: int
    phase: RescalePhase
    widths: Mapping[str, int]
    text: str
    refusals: Mapping[int, str] = field(default_factory=dict)
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """State of a job at one instant. ``checkpoint``: number of the last completed checkpoint, which also numbers the
    epoch after it."""

    job: str
    phase: Phase
    job_id: str = ""
    checkpoint: int = 0
    generation: int = 0  # number of the view that began the generation: 1, or that of the last rollback
    view: int = 0
    slots: tuple[SlotState, ...] = ()
    tasks: tuple[TaskState, ...] = ()
    recoveries: tuple[RecoveryState, ...] = ()
    moves: tuple[RecoveryState, ...] = ()  # of tasks that had not failed, to a slot without tasks
    savepoints: tuple[SavepointProgress, ...] = ()  # that are being written
    scaling: tuple[ScalingAdvice, ...] = ()  # of the steps that the option ``scale`` names, since the first window
    rescale: RescaleState | None = None  # None: none was asked for
    alarms: tuple[str, ...] = ()
    alarms_count: int = 0  # raised since the driver began, with those that ``alarms`` has no more
    totals: Mapping[str, int] = field(default_factory=dict)
    fault_points: str = ""  # host:port of the listener of fault points; empty: not armed


@dataclass(slots=True)
class Rate:
    """Growth of a counter of a task, which starts again with each incarnation, over the last ``RATE_SPAN_S``."""

    total: int = 0
    known: tuple[int, int] = (-1, 0)  # incarnation, value
    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, incarnation: int, value: int | None, now_s: float) -> None:
        """Adds a value that was read now; None: the incarnation has not told it yet."""
        if value is not None:
            before = self.known[1] if self.known[0] == incarnation else value
            self.total += max(0, value - before)
            self.known = incarnation, value
        self.seen.append((now_s, self.total))
        while self.seen[0][0] < now_s - RATE_SPAN_S and len(self.seen) > 1:
            self.seen.popleft()

    def per_second(self) -> float:
        """Returns the growth per second; 0 before the second value."""
        if not self.seen:
            return 0.0
        (then_s, then), (until_s, until) = self.seen[0], self.seen[-1]
        return (until - then) / (until_s - then_s) if until_s > then_s else 0.0

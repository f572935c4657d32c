"""Collector of the metrics of one job: the families that docs/metrics.md lists, made of the status of the moment."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from clonos.core.model.metric_series import LATE_RECORDS, MetricKind
from clonos.core.model.metric_series import Metric as UserMetric
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.task.latency import END_TO_END, PROCESSING
from clonos.io.system.wall_clock import wall_ns
from clonos.job.prometheus.job_counters import DurationHistogram, JobCounters, TaskTotals
from clonos.status import CheckpointState, Phase, Rate, Status, TaskState

MICROSECONDS_PER_S: Final = 1e6
NANOSECONDS_PER_S: Final = 1e9
JOB: Final = ("job", "job_id")
TASK: Final = (*JOB, "task", "operator")
SLOT: Final = (*JOB, "slot", "host")

TASK_COUNTERS: Final[Mapping[str, tuple[TaskCounter, float, str]]] = {
    "clonos_records_processed": (
        TaskCounter.RECORDS_IN,
        1,
        "Records that a task has read or received, each once, also if it was replayed.",
    ),
    "clonos_records_sent": (TaskCounter.RECORDS_OUT, 1, "Records sent to other tasks, with those sent in a replay."),
    "clonos_rows_written": (TaskCounter.ROWS_WRITTEN, 1, "Rows that an immediate sink has written."),
    "clonos_causal_log_written_bytes": (TaskCounter.DETERMINANT_BYTES, 1, "Bytes of the causal log of a task."),
    "clonos_replayed_records": (TaskCounter.REPLAYED_RECORDS, 1, "Records that a task has replayed in recoveries."),
    "clonos_replayed_calls": (
        TaskCounter.REPLAYED_CALLS,
        1,
        "Calls of external systems whose outcomes came from the causal log.",
    ),
    "clonos_live_calls": (TaskCounter.EXECUTED_CALLS, 1, "Calls of external systems that were made."),
    "clonos_busy_seconds": (TaskCounter.BUSY_US, 1 / MICROSECONDS_PER_S, "Time in which a task had input."),
    "clonos_blocked_seconds": (
        TaskCounter.BLOCKED_US,
        1 / MICROSECONDS_PER_S,
        "Time in which a task waited for its receivers to take output.",
    ),
}
TASK_GAUGES: Final[Mapping[str, tuple[TaskCounter, str]]] = {
    "clonos_state_size_bytes": (
        TaskCounter.STATE_BYTES,
        "State: memory of columns, about the encoded size of rows.",
    ),
    "clonos_causal_log_memory_bytes": (TaskCounter.LOG_MEMORY_BYTES, "Memory of the causal logs that a task holds."),
    "clonos_inflight_log_memory_bytes": (
        TaskCounter.INFLIGHT_MEMORY_BYTES,
        "Output since the last checkpoint, in memory.",
    ),
    "clonos_inflight_log_spilled_bytes": (
        TaskCounter.INFLIGHT_DISK_BYTES,
        "Output since the last checkpoint, spilled to the local disk.",
    ),
    "clonos_over_soft_limit": (TaskCounter.OVER_SOFT_LIMIT, "1 while the slot is above the soft limit of a budget."),
    "clonos_backlog_elements": (TaskCounter.BACKLOG_ELEMENTS, "Elements produced for a task and not processed yet."),
    "clonos_backlog_bytes": (TaskCounter.BACKLOG_BYTES, "Bytes that a source has received and not read yet."),
    "clonos_pending_records": (
        TaskCounter.PENDING_RECORDS,
        "Records that wait in the external system of a source; estimated where it counts bytes.",
    ),
    "clonos_pending_bytes": (TaskCounter.PENDING_BYTES, "Bytes that wait in the external system of a source."),
}


class JobCollector(Collector):
    """Collector of one job. ``sample`` is called each second, ``collect`` at each scrape, both in any thread."""

    def __init__(self, status: Callable[[], Status], checkpoints: Callable[[], tuple[CheckpointState, ...]]) -> None:
        self._status, self._checkpoints = status, checkpoints
        self._counters = JobCounters()
        self._lock = threading.Lock()

    def sample(self) -> Status:
        """Reads the counters once."""
        with self._lock:
            return self._sample()

    def _sample(self) -> Status:
        status = self._status()
        self._counters.add(status, self._checkpoints(), time.monotonic())
        return status

    def describe(self) -> Iterable[Metric]:
        """Returns nothing: a registry must not read the status of a job that has not begun."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Returns all families."""
        with self._lock:
            status = self._sample()
            return [
                *_job_families(status, self._counters),
                *_checkpoint_families(status, self._counters),
                *_recovery_families(status, self._counters),
                *_task_families(status, self._counters),
            ]


# ------------------------------------------------------------------ families


def _counter(name: str, text: str, labels: tuple[str, ...]) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=labels)


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)


def _of_job(status: Status) -> list[str]:
    return [status.job, status.job_id]


def _of_task(status: Status, task: str) -> list[str]:
    return [*_of_job(status), task, task.rpartition("/")[0]]


def _job_families(status: Status, counters: JobCounters) -> Iterator[Metric]:
    job = _of_job(status)
    phases = _gauge("clonos_job_phase", "1 for the phase that the job is in, 0 for all others.", (*JOB, "phase"))
    for phase in Phase:
        phases.add_metric([*job, phase.value], float(status.phase is phase))
    yield phases
    wanted = _gauge("clonos_wanted_tasks", "Tasks that a step with the option scale should have.", (*JOB, "operator"))
    for advice in status.scaling:
        wanted.add_metric([*job, advice.step], advice.wanted)
    yield wanted
    yield _alone(_gauge("clonos_slots", "Living slots of the job.", JOB), job, len(status.slots))
    cpu = _counter("clonos_slot_cpu_seconds", "Processor time of the process of a slot.", SLOT)
    memory = _gauge("clonos_slot_memory_bytes", "Memory of the process of a slot that is in RAM.", SLOT)
    for slot in status.slots:
        cpu.add_metric([*job, f"{slot.slot:016x}", slot.host], slot.cpu_s)
        memory.add_metric([*job, f"{slot.slot:016x}", slot.host], slot.memory_bytes)
    yield from (cpu, memory)
    alarms = _counter("clonos_alarms", "Alarms since the driver began, routine ones left out.", JOB)
    yield _alone(alarms, job, status.alarms_count)
    rollbacks = _counter("clonos_rollbacks", "Restarts of all tasks from the last checkpoint.", JOB)
    yield _alone(rollbacks, job, counters.rollbacks)


def _checkpoint_families(status: Status, counters: JobCounters) -> Iterator[Metric]:
    job = _of_job(status)
    yield _alone(_gauge("clonos_checkpoint", "Number of the last completed checkpoint.", JOB), job, status.checkpoint)
    size = _gauge("clonos_last_checkpoint_size_bytes", "Bytes that were stored for the last checkpoint.", JOB)
    if counters.last_size_bytes is not None:
        size.add_metric(job, counters.last_size_bytes)
    yield size
    durations = HistogramMetricFamily(
        "clonos_checkpoint_duration_seconds", "Time from a checkpoint's trigger to its completion.", labels=JOB
    )
    _add(durations, job, counters.checkpoint_durations)
    yield durations
    outcomes = _counter("clonos_checkpoints", "Checkpoints that have ended, by outcome.", (*JOB, "outcome"))
    for outcome, count in counters.checkpoints.items():
        outcomes.add_metric([*job, outcome], count)
    yield outcomes
    last = _gauge("clonos_last_checkpoint_timestamp_seconds", "Wall clock at which the last checkpoint completed.", JOB)
    if counters.last_completed_ns:
        last.add_metric(job, counters.last_completed_ns / NANOSECONDS_PER_S)
    yield last


def _recovery_families(status: Status, counters: JobCounters) -> Iterator[Metric]:
    job = _of_job(status)
    recoveries = _counter("clonos_recoveries", "Recoveries of a task that have begun.", TASK)
    moves = _counter("clonos_moves", "Moves of a task to a process without tasks that have begun.", TASK)
    for task in status.tasks:
        recoveries.add_metric(_of_task(status, task.name), counters.recoveries[task.name])
        moves.add_metric(_of_task(status, task.name), counters.moves[task.name])
    yield recoveries
    yield moves
    durations = HistogramMetricFamily(
        "clonos_recovery_duration_seconds",
        "Time from the detection of a failure until the task was live again.",
        labels=JOB,
    )
    _add(durations, job, counters.recovery_durations)
    yield durations
    phases = HistogramMetricFamily(
        "clonos_recovery_phase_seconds",
        "Time of a recovery from the milestone before to this one.",
        labels=(*JOB, "phase"),
    )
    for phase, found in counters.recovery_phases.items():
        _add(phases, [*job, phase], found)
    yield phases


def _task_families(status: Status, counters: JobCounters) -> Iterator[Metric]:
    known = [(task, _of_task(status, task.name), counters.tasks[task.name]) for task in status.tasks]
    for name, (counter, factor, text) in TASK_COUNTERS.items():
        family = _counter(name, text, TASK)
        for _, labels, totals in known:
            if (value := totals.totals.get(counter)) is not None:
                family.add_metric(labels, value * factor)
        yield family
    for name, (counter, text) in TASK_GAUGES.items():
        gauge = _gauge(name, text, TASK)
        for task, labels, _ in known:
            if (value := task.counters.get(counter)) is not None:
                gauge.add_metric(labels, value)
        yield gauge
    yield from _measured_families(known)
    yield from _latency_families(known)
    yield from _user_families(known)
    yield from _placed_families(known)


def _measured_families(known: list[tuple[TaskState, list[str], TaskTotals]]) -> Iterator[Metric]:
    busy = _gauge("clonos_busy_ratio", "Share of the last seconds in which a task had input, 0 to 1.", TASK)
    blocked = _gauge(
        "clonos_backpressure_ratio",
        "Share of the last seconds in which a task waited for its receivers, 0 to 1.",
        TASK,
    )
    lag = _gauge("clonos_watermark_lag_seconds", "Wall clock less the watermark of a source.", TASK)
    for task, labels, totals in known:
        if TaskCounter.BUSY_US in task.counters:
            busy.add_metric(labels, _ratio(totals.busy))
            blocked.add_metric(labels, _ratio(totals.blocked))
        if (reached_ns := task.counters.get(TaskCounter.WATERMARK_NS)) is not None:
            lag.add_metric(labels, (wall_ns() - reached_ns) / NANOSECONDS_PER_S)
    yield from (busy, blocked, lag)


def _latency_families(known: list[tuple[TaskState, list[str], TaskTotals]]) -> Iterator[Metric]:
    for metric in (PROCESSING, END_TO_END):
        shown = _user_family(metric)
        for _, labels, totals in known:
            if (found := totals.latencies.get(metric.name)) is not None:
                _add_series(shown, metric, labels, found.numbers)
        yield shown


def _user_families(known: list[tuple[TaskState, list[str], TaskTotals]]) -> Iterator[Metric]:
    """Late records and metrics of user code. If steps give one name to metrics of different forms, that of the first
    task is shown."""
    families: dict[str, tuple[UserMetric, Metric]] = {LATE_RECORDS.name: (LATE_RECORDS, _user_family(LATE_RECORDS))}
    for task, labels, _ in known:
        for family in task.metrics:
            metric = family.metric
            first, shown = families.setdefault(metric.name, (metric, _user_family(metric)))
            if not first.has_form_of(metric):
                continue
            for each in family.series:
                _add_series(shown, metric, [*labels, *each.labels], each.numbers)
    taken: set[str] = set()
    for metric, shown in families.values():
        if taken.isdisjoint(metric.sample_names):
            taken.update(metric.sample_names)
            yield shown


def _user_family(metric: UserMetric) -> Metric:
    labels = (*TASK, *metric.label_names)
    match metric.kind:
        case MetricKind.COUNTER:
            return _counter(metric.name, metric.text, labels)
        case MetricKind.GAUGE:
            return _gauge(metric.name, metric.text, labels)
        case MetricKind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.text, labels=labels)


def _add_series(shown: Metric, metric: UserMetric, labels: list[str], numbers: Sequence[float]) -> None:
    if isinstance(shown, HistogramMetricFamily):
        bounds = (*map(str, metric.bounds), "+Inf")
        shown.add_metric(labels, list(zip(bounds, accumulate(numbers[1:]), strict=True)), numbers[0])
    elif isinstance(shown, (CounterMetricFamily, GaugeMetricFamily)):
        shown.add_metric(labels, numbers[0])


def _placed_families(known: list[tuple[TaskState, list[str], TaskTotals]]) -> Iterator[Metric]:
    phases = _gauge("clonos_task_phase", "1 for the phase that a task is in.", (*TASK, "phase"))
    standbys = _gauge("clonos_standbys_ready", "Standbys that could take over now.", TASK)
    keepers = _gauge("clonos_keepers_ready", "Keepers that hold the whole log of a task.", TASK)
    survived = _gauge("clonos_losses_survived", "Further losses of failure domains without a loss of output.", TASK)
    for task, labels, _ in known:
        for phase in TaskPhase:
            phases.add_metric([*labels, phase.value], float(task.phase is phase))
        standbys.add_metric(labels, task.standbys)
        keepers.add_metric(labels, task.keepers)
        survived.add_metric(labels, math.inf if task.losses_survived is None else task.losses_survived)
    yield from (phases, standbys, keepers, survived)


def _alone(family: CounterMetricFamily | GaugeMetricFamily, labels: list[str], value: float) -> Metric:
    family.add_metric(labels, value)
    return family


def _add(family: HistogramMetricFamily, labels: list[str], histogram: DurationHistogram) -> None:
    family.add_metric(labels, histogram.buckets, histogram.sum_s)


def _ratio(rate: Rate) -> float:
    return min(1.0, rate.per_second() / MICROSECONDS_PER_S)

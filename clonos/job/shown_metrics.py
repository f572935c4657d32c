"""Metrics of user code, and late records, as a driver shows them: they do not fall back while a task replays.

A successor begins with the values of the last checkpoint and counts on. Until it has passed what was shown before,
counters and histograms show that, and gauges do until it has caught up. At the end of a task or job its own values
count, because a dead process may have counted what nobody else has seen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from clonos.core.model.metric_series import MetricFamily, MetricKind, MetricSeries
from clonos.core.model.progress import SETTLED_PHASES, TaskPhase
from clonos.status import Phase, Status, TaskState


class ShownMetrics:
    """Metrics that were shown last, by task. Any thread may call it."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[MetricFamily, ...]] = {}
        self._lock = threading.Lock()

    def applied_to(self, status: Status) -> Status:
        """Returns the status with the metrics to be shown."""
        with self._lock:
            if not self._shown and not any(task.metrics for task in status.tasks):
                return status
            tasks = tuple(self._applied(task, status.phase is Phase.ENDED) for task in status.tasks)
            self._shown.update((task.name, task.metrics) for task in tasks)
            return replace(status, tasks=tasks)

    def _applied(self, task: TaskState, has_ended: bool) -> TaskState:
        before = self._shown.get(task.name, ())
        if task.metrics and (has_ended or task.phase is TaskPhase.FINAL):
            return task
        return replace(task, metrics=combined(before, task.metrics, task.phase in SETTLED_PHASES))


def combined(
    before: Iterable[MetricFamily], now: Iterable[MetricFamily], has_caught_up: bool
) -> tuple[MetricFamily, ...]:
    """Returns the metrics of a task from those that were shown before and its own."""
    found = {family.metric.name: family for family in before}
    for family in now:
        shown = found.get(family.metric.name)
        if shown is not None and shown.metric.has_form_of(family.metric):
            family = msgspec.structs.replace(family, series=_series(shown, family, has_caught_up))
        found[family.metric.name] = family
    return tuple(found.values())


def _series(before: MetricFamily, now: MetricFamily, has_caught_up: bool) -> tuple[MetricSeries, ...]:
    found = {series.labels: series for series in before.series}
    for series in now.series:
        shown = found.get(series.labels)
        if shown is None or (now.metric.kind is MetricKind.GAUGE and has_caught_up):
            found[series.labels] = series
        elif now.metric.kind is not MetricKind.GAUGE:
            numbers = tuple(map(max, shown.numbers, series.numbers))
            found[series.labels] = MetricSeries(series.labels, numbers)
    return tuple(found.values())

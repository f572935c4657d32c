"""Metrics of user code as a driver shows them while tasks die."""

from __future__ import annotations

import pytest

from clonos.core.model.metric_series import Metric, MetricFamily, MetricKind, MetricSeries
from clonos.core.model.progress import TaskPhase
from clonos.job.shown_metrics import ShownMetrics
from clonos.status import Phase, Status, TaskState, metric_values
from tests.harnesses.late_families import late_families

PASSED = Metric(MetricKind.COUNTER, "passed", "Passed.", ("word",))
SIZE = Metric(MetricKind.GAUGE, "size", "Size.")
SECONDS = Metric(MetricKind.HISTOGRAM, "seconds", "Seconds.", (), (1.0, 2.0))


def family(metric: Metric, *series: tuple[tuple[str, ...], tuple[float, ...]]) -> MetricFamily:
    return MetricFamily(metric, tuple(MetricSeries(*each) for each in series))


def status(phase: TaskPhase, *families: MetricFamily, job: Phase = Phase.RUNNING) -> Status:
    return Status("sums", job, tasks=(TaskState("count/0", 1, 1, 1, "a", phase, {}, 1, 1, metrics=families),))


def values(shown: Status) -> dict[tuple[str, ...], float]:
    return {(each.name, *each.labels.values()): each.value for each in metric_values(shown.tasks)}


def test_values_do_not_fall_back_while_a_successor_replays() -> None:
    metrics = ShownMetrics()
    metrics.applied_to(status(TaskPhase.LIVE, family(PASSED, (("a",), (10,))), family(SIZE, ((), (5,)))))
    replayed = status(TaskPhase.REPLAYING, family(PASSED, (("a",), (7,)), (("b",), (1,))), family(SIZE, ((), (2,))))
    assert values(metrics.applied_to(status(TaskPhase.RECOVERING))) == {("passed", "a"): 10, ("size",): 5}
    assert values(metrics.applied_to(replayed)) == {("passed", "a"): 10, ("passed", "b"): 1, ("size",): 5}
    live = status(TaskPhase.LIVE, family(PASSED, (("a",), (12,))), family(SIZE, ((), (2,))))
    assert values(metrics.applied_to(live)) == {("passed", "a"): 12, ("passed", "b"): 1, ("size",): 2}


@pytest.mark.parametrize(("phase", "job"), [(TaskPhase.FINAL, Phase.RUNNING), (TaskPhase.WAITING, Phase.ENDED)])
def test_at_its_end_a_task_has_its_own_values(phase: TaskPhase, job: Phase) -> None:
    metrics = ShownMetrics()
    metrics.applied_to(status(TaskPhase.LIVE, family(PASSED, (("a",), (10,)))))  # one of which nobody else has seen
    last = status(phase, family(PASSED, (("a",), (9,))), job=job)
    assert values(metrics.applied_to(last)) == {("passed", "a"): 9}
    assert values(metrics.applied_to(status(TaskPhase.WAITING, job=Phase.ENDED))) == {("passed", "a"): 9}


def test_late_records_do_not_fall_back_and_are_not_metrics_of_user_code() -> None:
    metrics = ShownMetrics()
    metrics.applied_to(status(TaskPhase.LIVE, *late_families(window=10)))
    shown = metrics.applied_to(status(TaskPhase.REPLAYING, *late_families(window=7)))
    assert shown.tasks[0].late_records == {"window": 10}
    assert metric_values(shown.tasks) == []


def test_each_bucket_of_a_histogram_keeps_its_highest_count() -> None:
    metrics = ShownMetrics()
    metrics.applied_to(status(TaskPhase.LIVE, family(SECONDS, ((), (9.0, 1, 3, 1)))))
    shown = metrics.applied_to(status(TaskPhase.REPLAYING, family(SECONDS, ((), (4.0, 2, 1, 0)))))
    (found,) = metric_values(shown.tasks)
    assert (found.sum, found.count, found.buckets) == (9.0, 6, {1.0: 2, 2.0: 5, float("inf"): 6})
    assert found.value == 1.5

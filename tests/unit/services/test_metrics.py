"""Metrics of user code: their definitions, their series, and what a task's state keeps of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy
import pytest

from clonos.core.log.call_outcomes import RecordedError
from clonos.core.model.errors import JobError
from clonos.core.model.metric_series import OVERFLOW, SERIES_MAX, MetricConflict, MetricKind, MetricTable
from clonos.core.ports.recorder import MetricInCall, ServiceWithoutTask, confined_services, running
from clonos_services import metrics
from clonos_services.metrics import MetricInvalid
from clonos_services.service import service
from tests.harnesses.fake_recorder import FakeRecorder


def numbers(table: MetricTable, name: str) -> dict[tuple[str, ...], tuple[float, ...]]:
    (family,) = [found for found in table.families() if found.metric.name == name]
    return {series.labels: series.numbers for series in family.series}


def test_outside_a_job_each_object_counts_for_itself() -> None:
    passed, other = metrics.Counter("passed", "Passed."), metrics.Counter("passed", "Passed.")
    passed.inc()
    passed.inc(2.5)
    assert (passed.value, other.value) == (3.5, 0)
    size = metrics.Gauge("size", "Size.", labelnames=("side",))
    size.labels("left").set(7)
    size.labels(side="left").dec(2)
    size.labels("right").inc(numpy.float64(4))
    assert (size.labels("left").value, size.labels("right").value) == (5, 4)
    seconds = metrics.Histogram("seconds", "Seconds.", buckets=(1, 2))
    for value in (0.5, 1, 1.5, 9):
        seconds.observe(value)
    assert (seconds.count, seconds.sum) == (4, 12)


def test_in_a_task_equal_definitions_count_in_one_series_of_its_table() -> None:
    recorder = FakeRecorder()
    first, second = metrics.Counter("passed_total", "Passed."), metrics.Counter("passed", "The same.")
    seconds = metrics.Histogram("seconds", "Seconds.", buckets=(1, 2, math.inf))
    with running(recorder):
        first.inc()
        second.inc()
        assert first.value == 2
        for value in (1, 2, 3):
            seconds.observe(value)
    assert numbers(recorder.metric_table, "passed") == {(): (2,)}
    assert numbers(recorder.metric_table, "seconds") == {(): (6, 1, 1, 1)}
    assert first.value == 0, "outside the task it counts for itself again"


def test_an_object_that_two_tasks_share_counts_for_each_of_them() -> None:
    passed = metrics.Counter("passed", "Passed.", labelnames=["word"])
    tasks = FakeRecorder(), FakeRecorder()
    for recorder, times in zip(tasks * 2, (1, 10, 100, 1000), strict=True):
        with running(recorder):
            passed.labels("a").inc(times)
    assert [numbers(task.metric_table, "passed") for task in tasks] == [{("a",): (101,)}, {("a",): (1010,)}]


def test_a_restored_table_counts_on() -> None:
    recorder, successor = FakeRecorder(), FakeRecorder()
    passed = metrics.Counter("passed", "Passed.", labelnames=["word"])
    with running(recorder):
        passed.labels("a").inc()
    successor.metric_table = MetricTable(recorder.metric_table.families())
    with running(successor):
        passed.labels("b").inc()
        passed.labels("a").inc()
    assert numbers(successor.metric_table, "passed") == {("a",): (2,), ("b",): (1,)}


def test_a_restored_metric_of_another_form_starts_at_zero() -> None:
    recorder, successor = FakeRecorder(), FakeRecorder()
    with running(recorder):
        metrics.Histogram("seconds", "Seconds.", buckets=(1,)).observe(1)
        metrics.Gauge("late_total", "Late.").set(3)
    successor.metric_table = MetricTable(recorder.metric_table.families())
    with running(successor):
        metrics.Histogram("seconds", "Seconds.", buckets=(1, 2)).observe(1)
        metrics.Counter("late", "Late.").inc()
    assert numbers(successor.metric_table, "seconds") == {(): (1, 1, 0, 0)}
    assert [family.metric.name for family in successor.metric_table.families()] == ["seconds", "late"]


def test_two_metrics_of_one_name_and_other_forms_are_refused() -> None:
    with running(FakeRecorder()):
        metrics.Counter("seen", "Seen.").inc()
        with pytest.raises(MetricConflict, match="'seen' is a gauge seen, and the same task has a counter seen"):
            metrics.Gauge("seen", "Seen.").set(1)
        with pytest.raises(MetricConflict, match="a counter seen with the labels word"):
            metrics.Counter("seen", "Seen.", labelnames=["word"]).labels("a").inc()
        with pytest.raises(MetricConflict, match="give one another name"):
            metrics.Gauge("seen_total", "Seen.").set(1)


def test_labels_above_the_limit_count_together() -> None:
    recorder = FakeRecorder()
    seen = metrics.Counter("seen", "Seen.", labelnames=("user", "kind"))
    with running(recorder):
        for user in range(SERIES_MAX + 50):
            seen.labels(user, "x").inc()
        seen.labels(3, "x").inc()
    found = numbers(recorder.metric_table, "seen")
    assert len(found) == SERIES_MAX + 1
    assert [found[labels] for labels in ((OVERFLOW, OVERFLOW), ("3", "x"))] == [(50,), (2,)]
    restored = MetricTable(recorder.metric_table.families())
    assert restored.cell(recorder.metric_table.families()[0].metric, ("new", "x")) == [50.0]


def test_labels_become_texts_of_a_limited_length() -> None:
    recorder = FakeRecorder()
    seen = metrics.Counter("seen", "Seen.", labelnames="word")
    with running(recorder):
        for value in (1, True, None, "x" * 300, "x" * 400, "\ud800"):
            seen.labels(value).inc()
    assert numbers(recorder.metric_table, "seen") == {
        ("1",): (1,),
        ("True",): (1,),
        ("None",): (1,),
        ("x" * 200,): (2,),
        ("\\ud800",): (1,),
    }


def test_a_metric_is_pickled_by_its_definition() -> None:
    passed = metrics.Counter("passed", "Passed.", labelnames=["word"])
    seconds = metrics.Histogram("seconds", "Seconds.", buckets=(1, 2))
    child = passed.labels("a")
    child.inc()
    function = cloudpickle.loads(cloudpickle.dumps(lambda: [child.inc(), seconds.observe(1)]))  # type: ignore[func-returns-value]
    function()
    assert child.value == 1, "the copy counts for itself"
    recorder = FakeRecorder()
    with running(recorder):
        function()
    assert numbers(recorder.metric_table, "passed") == {("a",): (1,)}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: metrics.Counter("9 lives", ""), "needs a name of letters"),
        (lambda: metrics.Counter("clonos_lives", ""), "begin with clonos_"),
        (lambda: metrics.Counter("a" * 201, ""), "needs a name"),
        (lambda: metrics.Gauge("lives", None), "needs a text"),  # type: ignore[arg-type]
        (lambda: metrics.Gauge("lives", "", labelnames=["a-b"]), "has the label 'a-b'"),
        (lambda: metrics.Gauge("lives", "", labelnames=["__a"]), "has the label '__a'"),
        (lambda: metrics.Gauge("lives", "", labelnames=["task"]), "has the label task"),
        (lambda: metrics.Gauge("lives", "", labelnames=["a", "a"]), "different labels"),
        (lambda: metrics.Histogram("lives", "", buckets=()), "1 to 100 buckets"),
        (lambda: metrics.Histogram("lives", "", buckets=(2, 1)), "that ascend"),
        (lambda: metrics.Histogram("lives", "", buckets=(1, math.nan)), "finite numbers"),
        (lambda: metrics.Counter("lives", "").inc(-1), "only grows"),
        (lambda: metrics.Counter("lives", "").inc("1"), "takes finite numbers, not '1'"),  # type: ignore[arg-type]
        (lambda: metrics.Gauge("lives", "").set(math.nan), "takes finite numbers, not nan"),
        (lambda: metrics.Gauge("lives", "").labels("a"), "takes no labels, not ('a')"),
        (lambda: metrics.Counter("lives", "", labelnames=["a"]).inc(), "has labels: use .labels(a=...)"),
        (lambda: metrics.Counter("lives", "", labelnames=["a"]).labels(b=1), "takes the labels a, not (b=1)"),
        (lambda: metrics.Counter("lives", "", labelnames=["a"]).labels(), "takes the labels a, not ()"),
    ],
)
def test_a_wrong_definition_or_value_is_refused_in_words(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(MetricInvalid) as refused:
        make()
    assert words in str(refused.value)
    assert isinstance(refused.value, JobError)


def test_a_recorded_call_uses_no_metric() -> None:
    called = metrics.Counter("called", "Called.")

    @service
    def ask() -> None:
        called.inc()

    with running(FakeRecorder()), pytest.raises((MetricInCall, RecordedError), match="in a recorded call"):
        ask()


def test_a_thread_of_a_slot_that_runs_no_task_uses_no_metric() -> None:
    with confined_services(), pytest.raises(ServiceWithoutTask, match="the metric called"):
        metrics.Counter("called", "Called.").inc()


def test_kinds_have_the_samples_of_prometheus() -> None:
    recorder = FakeRecorder()
    with running(recorder):
        metrics.Histogram("seconds", "").observe(1)
    (family,) = recorder.metric_table.families()
    assert family.metric.kind is MetricKind.HISTOGRAM
    assert family.metric.sample_names == ("seconds_bucket", "seconds_count", "seconds_sum")

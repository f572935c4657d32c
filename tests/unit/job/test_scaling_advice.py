"""Advice about the widths of a running job: its options, and what the status says."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from clonos.api.graph import JobGraph
from clonos.config import RunOptions
from clonos.core.model.errors import JobError
from clonos.core.model.metric_series import MetricFamily, MetricSeries
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskPhase
from clonos.core.scaling.autoscaler import ScalingPolicy
from clonos.core.task.latency import BOUNDS_S, END_TO_END
from clonos.job import scaling_advice
from clonos.job.rescaling import Rescaled, RescaleRefused
from clonos.job.scaling_advice import ScaleRefused, ScalingAdviser, check_scale, scaling_groups
from clonos.operators.job_image import JobImage
from clonos.status import Phase, ScalingAdvice, Status, TaskState
from tests.unit.operators.driver import Given, Outbox

WINDOW_NS = 30_000_000_000
SCALE = RunOptions(scale=(("count", 1, 8),), scale_dry_run=True)
LIVE = replace(SCALE, scale_dry_run=False)
WANTED = "2 tasks to 3: the sources could give it 1,000 records/s, and 2 tasks can take 1,111/s"


class Advised:
    """Adviser of a job whose widths change at once, or not for the reason ``refusal``."""

    def __init__(self, image: JobImage, run: RunOptions = SCALE, refusal: str = "") -> None:
        self.plan, self.refusal = image.plan, refusal
        self.requests: list[dict[str, int]] = []
        self.adviser = ScalingAdviser(image, run, lambda: self.plan, self._rescale)

    def _rescale(self, widths: Mapping[str, int]) -> Rescaled:
        self.requests.append(dict(widths))
        if self.refusal:
            raise RescaleRefused("words", self.refusal)
        self.plan = self.plan.with_widths(widths)
        return Rescaled(dict(widths), 7, 0.4)

    def width(self) -> int:
        """Width of the step."""
        return next(vertex.parallelism for vertex in self.plan.vertices if vertex.name == "count")

    def observe(self, first: int, windows: int) -> ScalingAdvice:
        """Lets windows pass in which the step is too narrow, and returns what is said about it."""
        for window in range(first, first + windows):
            self.adviser.observe(_status(30 * window, 500, 0.9, width=self.width()), WINDOW_NS * window)
        (advice,) = self.adviser.advice
        return advice


@pytest.fixture(scope="module")
def image() -> JobImage:
    graph = JobGraph("words")
    words = graph.source(Given([b"1", b"2", b"3"]), name="read", parallelism=2)
    words.key_by(str).count(name="count").sink(Outbox(), name="write")
    return graph.compile(Options(), parallelism=2)


def _status(seconds: int, records_per_s: int, busy_share: float, incarnation: int = 1, width: int = 2) -> Status:
    tasks = [
        TaskState(f"{vertex}/{index}", incarnation, 7, 4711, "process-1", TaskPhase.LIVE, {}, 1, 1)
        for vertex, tasks in (("read", 2), ("count", width))
        for index in range(tasks)
    ]
    counters = {
        "records_in": seconds * records_per_s,
        "records_out": seconds * records_per_s,
        "busy_us": round(seconds * busy_share * 1e6),
    }
    idle = {**counters, "busy_us": 0}
    return Status(
        "words",
        Phase.RUNNING,
        tasks=tuple(replace(task, counters=counters if task.name[:5] == "count" else idle) for task in tasks),
    )


def test_the_status_has_the_width_that_a_step_should_have_after_two_windows(
    image: JobImage, caplog: pytest.LogCaptureFixture
) -> None:
    adviser, advice = Advised(image).adviser, []
    with caplog.at_level(logging.WARNING, "clonos.run"):
        for window in range(5):
            adviser.observe(_status(30 * window, 500, 0.9), WINDOW_NS * window)
            advice.append(adviser.advice)
    short = "2 tasks: more are needed, but not for long enough yet"
    assert advice[:3] == [(), (ScalingAdvice("count", 2, 2, short),), (ScalingAdvice("count", 2, 3, WANTED),)]
    assert advice[4] == advice[2]
    assert caplog.messages == [f"count should change its width: {WANTED}"]


def test_a_step_gets_the_width_that_it_should_have(image: JobImage, caplog: pytest.LogCaptureFixture) -> None:
    advised = Advised(image, LIVE)
    with caplog.at_level(logging.WARNING, "clonos.run"):
        advice = advised.observe(0, 3)
    assert (advised.requests, advised.width()) == ([{"count": 3}], 3)
    assert advice == ScalingAdvice("count", 3, 3, f"{WANTED}; changed in 0.4 s")
    assert caplog.messages == [f"count changes its width: {WANTED}", "count has 3 tasks after 0.4 s"]


def test_windows_after_a_change_are_measured_with_the_widths_of_then(image: JobImage) -> None:
    advised = Advised(image, LIVE)
    advised.observe(0, 3)
    assert advised.observe(3, 5).width in (3, 5)
    assert advised.requests == [{"count": 3}, {"count": 5}]


def test_a_dry_run_asks_for_no_change(image: JobImage) -> None:
    advised = Advised(image)
    assert advised.observe(0, 8).wanted == 3
    assert advised.requests == []


def test_a_refused_change_is_shown_with_its_reason_and_not_asked_for_again_soon(
    image: JobImage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling_advice, "monotonic_ns", lambda: 2 * WINDOW_NS)
    advised = Advised(image, LIVE, "no slot came within 60 s")
    with caplog.at_level(logging.WARNING, "clonos.run"):
        advice = advised.observe(0, 3)
    refused = "but the change was not made: no slot came within 60 s"
    assert advice == ScalingAdvice("count", 2, 2, f"{WANTED}, {refused}")
    assert caplog.messages[1:] == ["job words goes on as before: no slot came within 60 s."]
    later = advised.observe(3, 18)
    assert later == ScalingAdvice("count", 2, 2, f"2 tasks: more are needed, {refused}")
    assert advised.requests == [{"count": 3}]
    monkeypatch.setattr(scaling_advice, "monotonic_ns", lambda: 22 * WINDOW_NS)
    advised.observe(21, 6)
    assert advised.requests == [{"count": 3}, {"count": 3}]


def test_records_that_wait_outside_of_the_job_count_in_what_a_step_needs(image: JobImage) -> None:
    adviser = Advised(image).adviser
    for window in range(3):
        status = _status(30 * window, 500, 0.6)
        waiting = {"pending_records": 120_000 + 3_000 * window}
        tasks = tuple(
            replace(t, phase=TaskPhase.FINAL)
            if t.name == "read/1"
            else replace(t, counters={**t.counters, **waiting})
            if t.name == "read/0"
            else t
            for t in status.tasks
        )
        adviser.observe(replace(status, tasks=tasks), WINDOW_NS * window)
    (advice,) = adviser.advice
    assert advice.text == "2 tasks to 3: 2,150 records/s are to be processed, and 2 tasks can take 1,667/s"


def test_a_recovery_in_a_window_leaves_the_advice_as_it_was(image: JobImage) -> None:
    adviser = Advised(image).adviser
    for window, incarnation in enumerate((1, 1, 2, 2)):
        adviser.observe(_status(30 * window, 500, 0.9, incarnation), WINDOW_NS * window)
        assert all(each.wanted == 2 for each in adviser.advice)


@pytest.mark.parametrize(("final", "has_advice"), [(("read/1",), True), (("read/0", "read/1"), False)])
def test_there_is_advice_as_long_as_a_task_of_a_source_goes_on(
    image: JobImage, final: tuple[str, ...], has_advice: bool
) -> None:
    adviser = Advised(image).adviser
    for window in range(2):
        status = _status(30 * window, 500, 0.9)
        tasks = tuple(replace(t, phase=TaskPhase.FINAL if t.name in final else t.phase) for t in status.tasks)
        adviser.observe(replace(status, tasks=tasks), WINDOW_NS * window)
    assert bool(adviser.advice) is has_advice


def test_latency_above_its_target_asks_for_one_task_more(image: JobImage) -> None:
    run = replace(SCALE, scale_policy=ScalingPolicy.LATENCY, scale_latency_ms=100)
    adviser = Advised(image, run).adviser
    place = next(number for number, bound in enumerate(BOUNDS_S) if bound > 0.2)
    for window in range(3):
        status = _status(30 * window, 500, 0.3)
        numbers = [0.0] * (len(BOUNDS_S) + 2)
        numbers[1 + place] = 1_000.0 * window
        slow = MetricFamily(END_TO_END, (MetricSeries((), tuple(numbers)),))
        tasks = tuple(replace(t, latencies=(slow,) if t.name[:5] == "count" else ()) for t in status.tasks)
        adviser.observe(replace(status, tasks=tasks), WINDOW_NS * window)
    assert [each.wanted for each in adviser.advice] == [3]


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ((("cuont", 1, 8),), "scale= names 'cuont', but the job has no such step. Did you mean count?"),
        ((("count", 3, 8),), "it has 2 tasks, which is not within 3 to 8"),
        ((("count", 1, 200),), "200 is above max_parallelism, which is 128"),
        ((("count", 1, 8), ("write", 1, 8)), "it has the same tasks as 'count'"),
    ],
    ids=["no such step", "not within its bounds", "above the key groups", "one width"],
)
def test_bounds_that_do_not_fit_the_job_are_refused(
    image: JobImage, scale: tuple[tuple[str, int, int], ...], message: str
) -> None:
    with pytest.raises(ScaleRefused, match=re.escape(message)):
        check_scale(image, RunOptions(scale=scale))


def test_the_advice_of_a_step_that_keeps_its_tasks_has_the_reason(image: JobImage) -> None:
    vertices = tuple(replace(v, fixed="it has a limit" if v.name == "count" else "") for v in image.plan.vertices)
    advised = Advised(replace(image, plan=replace(image.plan, vertices=vertices)), LIVE)
    advice = advised.observe(0, 3)
    assert advice.wanted == 3
    assert advised.requests == []
    assert advice.text.endswith(', but "count" keeps its number of tasks, 2: it has a limit')


def test_the_policy_of_latency_needs_a_target(image: JobImage) -> None:
    with pytest.raises(JobError, match='set scale_latency, as in scale_latency="200ms"'):
        check_scale(image, replace(SCALE, scale_policy=ScalingPolicy.LATENCY))


@pytest.mark.parametrize(("window_ms", "down_ms"), [(0, 600_000), (30_000, 20_000)])
def test_times_that_make_no_sense_are_refused(image: JobImage, window_ms: int, down_ms: int) -> None:
    run = replace(SCALE, scale_window_ms=window_ms, scale_down_after_ms=down_ms)
    with pytest.raises(JobError, match=f"scale_window is {window_ms} ms and scale_down_after {down_ms} ms"):
        check_scale(image, run)


def test_a_source_that_finds_no_new_splits_is_bounded_by_those_it_has(image: JobImage) -> None:
    (group,) = scaling_groups(image, RunOptions(scale=(("read", 1, 8),)))
    assert group.splits == len(image.splits["read"])

"""Advice about the widths of a running job: its options, and what the status says."""

from __future__ import annotations

import itertools
import logging
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.config import RunOptions
from clonos.core.coordinator.rescale import BESIDE
from clonos.core.model.errors import JobError
from clonos.core.model.metric_series import MetricFamily, MetricSeries
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskPhase
from clonos.core.scaling.autoscaler import ScalingPolicy
from clonos.core.scaling.functions import ScalingEvent, ScalingOutcome, ScalingSample, StepLoad
from clonos.core.task.latency import BOUNDS_S, END_TO_END
from clonos.job import scaling_advice
from clonos.job.rescaling import RescaleBusy, Rescaled, RescaleInterrupted, RescaleRefused
from clonos.job.scaling_advice import ScaleRefused, ScalingAdviser, check_scale, scaling_groups
from clonos.operators.job_image import JobImage
from clonos.status import Phase, ScalingAdvice, Status, TaskState
from tests.unit.operators.driver import Given, Outbox

WINDOW_NS = 30_000_000_000
SCALE = RunOptions(scale=(("count", 1, 8),), scale_dry_run=True)
LIVE = replace(SCALE, scale_dry_run=False)
WANTED = "2 tasks to 3: the sources could give it 1,000 records/s, and 2 tasks can take 1,111/s"


FAILED = "count/0 has failed: process died"


class Advised:
    """Adviser of a job whose widths change at once, or not for the reason ``refusal``."""

    def __init__(self, image: JobImage, run: RunOptions = SCALE, refusal: str = "") -> None:
        self.plan, self.refusal = image.plan, refusal
        self.requests: list[dict[str, int]] = []
        self.adviser = ScalingAdviser(image, run, lambda: self.plan, self._rescale)

    def _rescale(self, widths: Mapping[str, int]) -> Rescaled:
        self.requests.append(dict(widths))
        if self.refusal:
            kinds = {BESIDE: RescaleBusy, FAILED: RescaleInterrupted}
            raise kinds.get(self.refusal, RescaleRefused)("words", self.refusal)
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


def test_a_change_during_another_one_is_asked_for_again_in_the_next_window(image: JobImage) -> None:
    advised = Advised(image, LIVE, BESIDE)
    advice = advised.observe(0, 3)
    assert advice == ScalingAdvice("count", 2, 2, f"{WANTED}, but not now: another change of widths is under way")
    advised.refusal = ""
    assert advised.observe(3, 1).width == 3
    assert advised.requests == [{"count": 3}, {"count": 3}]


# ---------------------------------------------------------------------- functions of the user


def test_a_function_gets_the_load_of_each_step_by_its_name_and_decides_the_widths(image: JobImage) -> None:
    samples: list[ScalingSample] = []

    def decide(sample: ScalingSample) -> dict[str, int] | None:
        samples.append(sample)
        return {"count": 7} if len(samples) > 1 else None

    advised = Advised(image, replace(LIVE, scale_policy=decide))
    assert advised.observe(0, 2).text == "2 tasks: decide asks for no change"
    assert advised.observe(2, 1).text == "2 tasks to 7: decide asks for 7; changed in 0.4 s"
    assert advised.requests == [{"count": 7}]
    count = StepLoad(2, 3, 1_000.0, 1_000.0, 0.9, 0.0, None, 0.0, "", 0.0)
    assert samples[0].steps["count"] == samples[0].steps["write"] == count
    assert samples[0].steps["read"] == replace(count, tasks_needed=None, busy_share=0.0)
    assert (samples[0].window_s, samples[0].latency_ms) == (30.0, None)


def broken(sample: ScalingSample) -> dict[str, int] | None:
    return {"count": sample.steps["cuont"].tasks}


def ends(_sample: ScalingSample) -> dict[str, int] | None:
    sys.exit("no more")


RETURNED: list[tuple[Any, str]] = [
    (broken, "broken raised KeyError at tests.unit.job.test_scaling_advice:{line} in broken"),
    (ends, "ends raised SystemExit at tests.unit.job.test_scaling_advice:{line} in ends"),
    (lambda _: 4, "<lambda> returned 4, which is neither a dict of widths by step nor None"),
    (lambda _: {"read": 2}, "<lambda> returned a width for 'read': scale= names count"),
    (lambda _: {"cuont": 2}, "<lambda> returned a width for 'cuont': Did you mean count?"),
    (lambda _: {"count": 2.0}, "<lambda> returned 2.0 as the width of count, which is not an int of 1 or more"),
    (lambda _: {"count": 0}, "<lambda> returned 0 as the width of count, which is not an int of 1 or more"),
]


@pytest.mark.parametrize(("decide", "text"), RETURNED)
def test_a_function_that_fails_leaves_the_widths_and_is_logged_once_with_its_line(
    image: JobImage, decide: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = text.format(line=decide.__code__.co_firstlineno + 1)
    with caplog.at_level(logging.WARNING, "clonos.run"):
        advice = Advised(image, replace(LIVE, scale_policy=decide)).observe(0, 5)
    assert advice == ScalingAdvice("count", 2, 2, f"2 tasks: {expected}")
    (message,) = caplog.messages
    assert message.startswith(expected)
    assert "the widths stay as they are" in message.lower()


@pytest.mark.parametrize(
    ("run", "refusal", "outcome", "duration_s"),
    [
        (LIVE, "", ScalingOutcome.CHANGED, 0.4),
        (LIVE, "no slot came", ScalingOutcome.REFUSED, None),
        (LIVE, BESIDE, ScalingOutcome.POSTPONED, None),
        (LIVE, FAILED, ScalingOutcome.POSTPONED, None),
        (SCALE, "", ScalingOutcome.ADVISED, None),
    ],
)
def test_a_listener_gets_each_decision_with_its_outcome_and_sentence(
    image: JobImage, run: RunOptions, refusal: str, outcome: ScalingOutcome, duration_s: float | None
) -> None:
    events: list[ScalingEvent] = []
    advised = Advised(image, replace(run, on_scale=events.append), refusal)
    text = advised.observe(0, 3).text
    assert events == [ScalingEvent("words", "count", 2, 3, outcome, text, duration_s)]


def test_a_listener_that_raises_is_logged_once_and_called_again(
    image: JobImage, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def page(event: ScalingEvent) -> None:
        calls.append(event.step)
        raise ConnectionError("no route")

    advised = Advised(image, replace(LIVE, on_scale=page))
    advised.observe(0, 8)
    assert advised.requests == [{"count": 3}, {"count": 5}]
    assert calls == ["count", "count"]
    raised = [each for each in caplog.messages if "raised" in each]
    assert len(raised) == 1
    assert raised[0].startswith("page raised ConnectionError at tests.unit.job.test_scaling_advice:")


def test_a_function_that_does_not_return_is_named_at_the_end_of_the_job(
    image: JobImage, caplog: pytest.LogCaptureFixture
) -> None:
    began, may_end = threading.Event(), threading.Event()

    def decide(_sample: ScalingSample) -> None:
        began.set()
        may_end.wait()

    run = replace(LIVE, scale_policy=decide, scale_window_ms=1)
    advised, seconds = Advised(image, run), itertools.count()
    advised.adviser.start(lambda: _status(next(seconds), 500, 0.9))
    assert began.wait(60)
    advised.adviser.close(0.05)
    assert caplog.messages == ["decide has not returned, and is left alone at the end of the job"]
    may_end.set()
    advised.adviser.close()


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

"""Scaling of a running job: what the autoscaler decides, window by window.

A thread reads the counters of the tasks once a window, the autoscaler of ``clonos.core.scaling`` decides, the status of
the job shows it with its reason, and the job changes its widths, unless it is a dry run.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final

from clonos.config import RunOptions, SlotKind
from clonos.core.model.errors import JobError
from clonos.core.model.missing_names import nearest
from clonos.core.model.plan import Plan, refusals
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.scaling.autoscaler import (
    Advice,
    Autoscaler,
    ScalingGroup,
    ScalingMemory,
    ScalingPolicy,
    ScalingSettings,
    tasks_text,
)
from clonos.core.scaling.functions import ScalingEvent, ScalingOutcome
from clonos.core.scaling.load import LoadSample, TaskSample, load_between
from clonos.core.task.latency import BOUNDS_S, END_TO_END
from clonos.io.system.wall_clock import monotonic_ns
from clonos.job.prometheus.job_counters import quantile
from clonos.job.rescaling import RescaleBusy, Rescaled, RescaleInterrupted, RescaleRefused, splits_of
from clonos.job.scaling_calls import ScalingCalls
from clonos.operators.job_image import JobImage
from clonos.status import Phase, ScalingAdvice, Status, TaskState

logger = logging.getLogger("clonos.run")

MILLISECONDS_PER_S: Final = 1_000
MICROSECONDS_PER_S: Final = 1_000_000

FUNCTION_ENDS_S: Final = 5.0
"""Seconds for which the end of a job waits for a function of the user."""


class ScaleRefused(JobError):
    """The bounds of a step do not fit the job."""

    step: str
    reason: str

    def __str__(self) -> str:
        return f"scale= names {self.step!r}, but {self.reason}"


def scaling_groups(image: JobImage, run: RunOptions) -> tuple[ScalingGroup, ...]:
    """Returns the groups of vertices that ``scale`` names by their steps.

    Raises: ScaleRefused: there is no such step, two of them have one width, or it is not within the bounds.
    """
    plan = image.plan
    vertex_of = {node.step: number for number, vertex in enumerate(image.vertices) for node in vertex.nodes}
    named: dict[int, str] = {}
    groups = []
    for step, width_min, width_max in run.scale:
        if step not in vertex_of:
            hint = nearest(step, vertex_of) or f"It has: {', '.join(vertex_of)}."
            raise ScaleRefused(step, f"the job has no such step. {hint}")
        first = plan.scaling_group[vertex_of[step]]
        width = plan.vertices[first].parallelism
        if first in named:
            raise ScaleRefused(step, f"it has the same tasks as {named[first]!r}: name one of them only.")
        if not width_min <= width <= width_max:
            raise ScaleRefused(
                step,
                f"it has {width} tasks, which is not within {width_min} to {width_max}: set parallelism= or --width.",
            )
        if width_max > plan.max_parallelism:
            raise ScaleRefused(step, f"{width_max} is above max_parallelism, which is {plan.max_parallelism}.")
        members = tuple(number for number, group in enumerate(plan.scaling_group) if group == first)
        named[first] = step
        groups.append(ScalingGroup(step, members, width_min, width_max, splits_of(image, members)))
    return tuple(groups)


def scaling_settings(run: RunOptions) -> ScalingSettings:
    """Returns the settings of the autoscaler from those of a run.

    Raises: JobError: a target of latency is missing, or a time is wrong.
    """
    if run.scale_policy is ScalingPolicy.LATENCY and not run.scale_latency_ms:
        raise JobError('scale_policy="latency" needs the target: set scale_latency, as in scale_latency="200ms".')
    if not 0 < run.scale_window_ms <= run.scale_down_after_ms:
        raise JobError(
            f"scale_window is {run.scale_window_ms} ms and scale_down_after {run.scale_down_after_ms} ms: set a"
            " scale_window above 0, and a scale_down_after that is at least as long."
        )
    return ScalingSettings(
        policy=run.scale_policy if isinstance(run.scale_policy, ScalingPolicy) else ScalingPolicy.LAG,
        latency_target_ms=run.scale_latency_ms,
        catch_up_s=max(1, run.scale_catch_up_ms) / MILLISECONDS_PER_S,
        window_s=run.scale_window_ms / MILLISECONDS_PER_S,
        seconds_down=run.scale_down_after_ms / MILLISECONDS_PER_S,
    )


def check_scale(image: JobImage, run: RunOptions) -> None:
    """Checks the options of scaling against the job. Raises: JobError, ScaleRefused."""
    scaling_groups(image, run)
    scaling_settings(run)


class ScalingAdviser:
    """Adviser of one job. ``observe`` takes the status at the end of each window; the thread of ``start`` calls it.

    ``plan``: returns the plan with the widths of now. ``rescale``: changes widths by step, waits, and raises
    RescaleRefused if they stay; a dry run does not call it.
    """

    def __init__(
        self,
        image: JobImage,
        run: RunOptions,
        plan: Callable[[], Plan],
        rescale: Callable[[Mapping[str, int]], Rescaled],
    ) -> None:
        self._plan, self._plan_now, self._rescale = image.plan, plan, rescale
        self._is_dry_run = run.scale_dry_run
        self._groups, self._settings = scaling_groups(image, run), scaling_settings(run)
        self._autoscaler, self._memory = Autoscaler(image.plan, self._groups, self._settings), ScalingMemory()
        self._calls = ScalingCalls(image, run, self._groups)
        self._knows_hosts = run.slots in (SlotKind.PROCESS, SlotKind.THREAD)
        feeding = {edge.source for edge in image.plan.edges if edge.target is not None}
        self._last = frozenset(v.name for number, v in enumerate(image.plan.vertices) if number not in feeding)
        self._before: LoadSample | None = None
        self._latencies: list[float] = []
        self._advice: tuple[ScalingAdvice, ...] = ()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, status: Callable[[], Status]) -> None:
        """Starts the thread, which asks for the status once a window."""
        self._thread = threading.Thread(target=self._observe_on, args=(status,), name="scaling", daemon=True)
        self._thread.start()

    def _observe_on(self, status: Callable[[], Status]) -> None:
        while True:
            self.observe(status(), monotonic_ns())
            if self._over.wait(self._settings.window_s):
                return

    def stop(self) -> None:
        """Lets no change of widths begin any more."""
        self._over.set()

    def close(self, function_ends_s: float = FUNCTION_ENDS_S) -> None:
        """Ends the thread, unless a function of the user does not return in time. The job must have ended: a change of
        widths that is under way ends with it."""
        self._over.set()
        if self._thread is None:
            return
        self._thread.join(function_ends_s)
        while self._thread.is_alive():
            if self._calls.under_way:
                logger.warning("%s has not returned, and is left alone at the end of the job", self._calls.under_way)
                return
            self._thread.join(function_ends_s)

    @property
    def advice(self) -> tuple[ScalingAdvice, ...]:
        """Widths that the autoscaler would choose now; empty before the end of the first window."""
        return self._advice

    def observe(self, status: Status, at_ns: int) -> None:
        """Takes the counters at the end of a window."""
        before, self._before = self._before, self._sample(status, at_ns)
        load = None if before is None else load_between(self._plan, before, self._before)
        if load is None:
            return
        asked = self._calls.asked(load, self._autoscaler.needed(self._memory, load))
        self._memory, decision = self._autoscaler.step(self._memory, load, asked)
        wanted_before = {each.step: each.wanted for each in self._advice}
        self._advice = tuple(
            ScalingAdvice(each.group, each.width, each.wanted, each.sentence + self._obstacle(each))
            for each in decision.advice
        )
        possible = {each.group: each.wanted for each in decision.advice if not self._obstacle(each)}
        widths = {} if self._is_dry_run else {name: possible[name] for name in decision.widths if name in possible}
        for each in self._advice:
            if each.step in widths:
                logger.warning("%s changes its width: %s", each.step, each.text)
            elif each.wanted not in (each.width, wanted_before.get(each.step)):
                logger.warning("%s should change its width: %s", each.step, each.text)
                self._report(each, each, ScalingOutcome.ADVISED)
        if widths and not self._over.is_set():
            self._change(widths)

    def _report(
        self, before: ScalingAdvice, after: ScalingAdvice, outcome: ScalingOutcome, duration_s: float | None = None
    ) -> None:
        """Tells the listener of a decision. ``after``: what the status says of it."""
        event = ScalingEvent(
            self._plan.job_name, before.step, before.width, before.wanted, outcome, after.text, duration_s
        )
        self._calls.report(event)

    def _change(self, widths: Mapping[str, int]) -> None:
        """Changes widths. A refusal is remembered with its reason. The next window begins after the change, or goes on
        if none was begun."""
        duration_s = None
        try:
            done = self._rescale(widths)
        except RescaleBusy as error:
            self._memory = self._autoscaler.after_delay(self._memory)
            outcome, after = ScalingOutcome.POSTPONED, f", but not now: {error.reason}"
            logger.warning("%s", error)
        except RescaleInterrupted as error:
            self._memory = self._autoscaler.after_interruption(self._memory, monotonic_ns())
            outcome, after = ScalingOutcome.POSTPONED, f", but not now: {error.reason}"
            logger.warning("%s", error)
        except RescaleRefused as error:
            self._memory = self._autoscaler.after_refusal(self._memory, widths, monotonic_ns(), error.reason)
            outcome, after = ScalingOutcome.REFUSED, f", but the change was not made: {error.reason}"
            logger.warning("%s", error)
        else:
            outcome, duration_s = ScalingOutcome.CHANGED, done.duration_s
            after = f"; changed in {done.duration_s:.1f} s"
            for step in widths:
                logger.warning("%s has %s after %.1f s", step, tasks_text(done.widths[step]), done.duration_s)
        now = self._plan_now().widths
        width_of = {group.name: now[self._plan.vertices[group.vertices[0]].name] for group in self._groups}
        before = self._advice
        self._advice = tuple(
            ScalingAdvice(each.step, width_of[each.step], width_of[each.step], each.text + after)
            if each.step in widths
            else each
            for each in before
        )
        if outcome is not ScalingOutcome.POSTPONED:
            self._before = None
        for decided, shown in zip(before, self._advice, strict=True):
            if decided.step in widths:
                self._report(decided, shown, outcome, duration_s)

    def _obstacle(self, advice: Advice) -> str:
        """Returns why the width of a group cannot change as it should, as the end of a sentence; "" if it can."""
        if advice.wanted == advice.width:
            return ""
        first = next(group.vertices[0] for group in self._groups if group.name == advice.group)
        reasons = refusals(self._plan_now(), {self._plan.vertices[first].name: advice.wanted})
        return f", but {reasons[0]}" if reasons else ""

    def _sample(self, status: Status, at_ns: int) -> LoadSample:
        used: dict[str, int] = {}
        for slot in status.slots:
            used[slot.host] = used.get(slot.host, 0) + round(slot.cpu_s * MICROSECONDS_PER_S)
        here = {socket.gethostname(): os.cpu_count() or 1}
        ended = frozenset(task.name for task in status.tasks if task.phase is TaskPhase.FINAL)
        sources = {vertex.name for vertex in self._plan.vertices if vertex.is_source}
        return LoadSample(
            at_ns,
            {task.name: _task_sample(task) for task in status.tasks},
            status.phase is Phase.RUNNING
            and all(task.phase is TaskPhase.LIVE or task.name in ended for task in status.tasks)
            and any(task.name.rpartition("/")[0] in sources and task.name not in ended for task in status.tasks),
            ended,
            processor_us=used,
            processors=here if self._knows_hosts and used.keys() <= here.keys() else None,
            latency_ms=self._latency_ms(status),
        )

    def _latency_ms(self, status: Status) -> float | None:
        """Returns the 99th percentile of the latency from a source to the last tasks since the sample before."""
        series = [
            family.series[0].numbers[1:]
            for task in status.tasks
            if task.name.rpartition("/")[0] in self._last
            for family in task.latencies
            if family.metric.name == END_TO_END.name
        ]
        counts = [sum(each) for each in zip(*series, strict=True)]
        before, self._latencies = self._latencies or [0.0] * len(counts), counts
        if len(before) != len(counts):
            return None
        growth = [max(0.0, now - then) for now, then in zip(counts, before, strict=True)]
        found = quantile(BOUNDS_S, growth, 0.99)
        return None if found is None else found * MILLISECONDS_PER_S


def _task_sample(task: TaskState) -> TaskSample:
    counters = task.counters
    return TaskSample(
        task.incarnation,
        counters.get(TaskCounter.RECORDS_IN, 0),
        counters.get(TaskCounter.RECORDS_OUT, 0),
        counters.get(TaskCounter.BUSY_US, 0),
        counters.get(TaskCounter.BLOCKED_US, 0),
        0 if task.phase is TaskPhase.FINAL else counters.get(TaskCounter.PENDING_RECORDS),
        task.hot_key,
        task.hot_key_share,
    )

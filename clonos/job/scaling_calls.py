"""Calls of a user's functions for scaling, ``scale_policy`` and ``on_scale``: no exception of theirs harms the job.

They run in the thread of the scaling. Each error is logged once, with its line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from clonos.config import RunOptions, name_of_function
from clonos.core.model.code_location import user_frames, user_frames_of
from clonos.core.model.missing_names import nearest
from clonos.core.scaling.autoscaler import AskedWidths, ScalingGroup, ScalingPolicy
from clonos.core.scaling.functions import Decide, ScalingEvent, ScalingSample, StepLoad
from clonos.core.scaling.load import Load
from clonos.operators.job_image import JobImage

logger = logging.getLogger("clonos.run")

RAISED: Final = (Exception, SystemExit)
"""Exceptions of a function; ``sys.exit()`` in it is an error and does not end the thread."""


class ScalingCalls:
    """Functions of the user for the scaling of one job. ``groups``: those that ``scale`` names."""

    def __init__(self, image: JobImage, run: RunOptions, groups: tuple[ScalingGroup, ...]) -> None:
        self._decide: Decide | None = None if isinstance(run.scale_policy, ScalingPolicy) else run.scale_policy
        self._listener = run.on_scale
        self._window_s = run.scale_window_ms / 1_000
        self._names = tuple(group.name for group in groups)
        named = {number: group.name for group in groups for number in group.vertices}
        self._steps = {
            node.step: (image.plan.vertices[number].name, named.get(number, ""))
            for number, vertex in enumerate(image.vertices)
            for node in vertex.nodes
        }
        """By step: its vertex and its group, "" without one."""
        self._logged: set[tuple[str, str]] = set()
        self.under_way = ""  # name of the function that runs now

    @property
    def has_policy(self) -> bool:
        """Whether a function decides the widths."""
        return self._decide is not None

    def asked(self, load: Load, needed: Mapping[str, int | None]) -> AskedWidths | None:
        """Returns what the function decides; None without one. ``needed``: widths that the load needs, by group."""
        if self._decide is None:
            return None
        by = name_of_function(self._decide)
        steps = {step: _step_load(load, vertex, needed.get(group)) for step, (vertex, group) in self._steps.items()}
        sample = ScalingSample(self._window_s, steps, load.latency_ms, load.processors_share)
        try:
            with self._calling(by):
                returned = self._decide(sample)
        except RAISED as error:
            return AskedWidths(by, {}, self._error(by, error, "the widths stay as they are"))
        fault = self._fault(returned)
        if fault:
            failure = f"{by} {fault}"
            self._log_once(by, failure, f"{failure}. The widths stay as they are.")
            return AskedWidths(by, {}, failure)
        return AskedWidths(by, dict(returned or {}))

    def report(self, event: ScalingEvent) -> None:
        """Calls the listener, if there is one."""
        if self._listener is None:
            return
        by = name_of_function(self._listener)
        try:
            with self._calling(by):
                self._listener(event)
        except RAISED as error:
            self._error(by, error, "the job goes on, and the function is called again next time")

    @contextmanager
    def _calling(self, by: str) -> Iterator[None]:
        self.under_way = by
        try:
            yield
        finally:
            self.under_way = ""

    def _fault(self, returned: Any) -> str:
        """Returns what is wrong with the answer of the function, as a clause; "" if nothing is."""
        if returned is None:
            return ""
        if not isinstance(returned, Mapping):
            return f"returned {returned!r:.80}, which is neither a dict of widths by step nor None"
        for step, width in returned.items():
            if step not in self._names:
                known = f"scale= names {', '.join(self._names)}"
                return f"returned a width for {step!r:.80}: {nearest(str(step), self._names) or known}"
            if type(width) is not int or width < 1:
                return f"returned {width!r:.80} as the width of {step}, which is not an int of 1 or more"
        return ""

    def _error(self, by: str, error: BaseException, after: str) -> str:
        """Logs an error of a function the first time; returns what it was, as a clause."""
        frames = user_frames_of(error)
        where = f" at {frames[-1].place}" if frames else ""
        clause = f"{by} raised {type(error).__name__}{where}"
        self._log_once(by, clause, f"{clause}: {error}; {after}\n{user_frames(error)}".rstrip())
        return clause

    def _log_once(self, by: str, what: str, text: str) -> None:
        if (by, what) not in self._logged:
            self._logged.add((by, what))
            logger.warning("%s", text)


def _step_load(load: Load, vertex: str, needed: int | None) -> StepLoad:
    here = load.vertices[vertex]
    return StepLoad(
        tasks=here.width,
        tasks_needed=needed,
        records_in_per_s=here.records_in_per_s,
        records_out_per_s=here.records_out_per_s,
        busy_share=here.busy_share,
        blocked_share=here.blocked_share,
        pending_records=here.lag_records,
        pending_growth_per_s=here.lag_growth_per_s,
        hot_key=here.hot_key,
        hot_key_share=here.hot_key_share,
    )

"""Arguments of the functions that a user gives to the autoscaler: one decides widths, and one is told of decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class StepLoad:
    """Load of the tasks of one step over a window. Steps that run in the same tasks have the same load.

    Attributes:
        tasks: number of tasks now.
        tasks_needed: number of tasks that the load needs by the policy ``lag``, which may be above the most of
            ``scale``; None if the step is not in ``scale``, if it cannot be told, or if no number is enough.
        records_in_per_s: records per second that all tasks took.
        records_out_per_s: records per second that all tasks passed on.
        busy_share: share of the time in which the busiest task worked, 0 to 1.
        blocked_share: largest share of the time in which a task waited for the tasks behind it, 0 to 1.
        pending_records: of a source: records that wait in the external system; None if the source does not tell.
        pending_growth_per_s: by how many records per second these have grown; negative if they have become fewer.
        hot_key: text of the key of most of the latest records of the busiest task; "" if no key stands out.
        hot_key_share: share of this key in those records, 0 to 1.
    """

    tasks: int
    tasks_needed: int | None
    records_in_per_s: float
    records_out_per_s: float
    busy_share: float
    blocked_share: float
    pending_records: int | None
    pending_growth_per_s: float
    hot_key: str
    hot_key_share: float


@dataclass(frozen=True, slots=True)
class ScalingSample:
    """Load of a job over a window, for a function as ``scale_policy``.

    Attributes:
        window_s: length of the window in seconds.
        steps: load of each step of the job by its name, also of steps that ``scale`` does not name.
        latency_ms: time in ms in which 99 % of the records came from a source to a last step; None if there were none.
        processors_share: share of the processors of the job's host that its processes used, 0 to 1; None if other hosts
            belong to the job or could join it.
    """

    window_s: float
    steps: Mapping[str, StepLoad]
    latency_ms: float | None
    processors_share: float | None


class ScalingOutcome(StrEnum):
    """Outcome of a decision of the autoscaler."""

    CHANGED = "changed"  # the step has its new width
    REFUSED = "refused"  # the change was refused or given up; the step has the width that it had
    POSTPONED = "postponed"  # another change was under way, or a task failed; asked for again after the next window
    ADVISED = "advised"  # nothing was changed: a dry run, or the width of the step cannot change


@dataclass(frozen=True, slots=True)
class ScalingEvent:
    """Decision of the autoscaler about one step, for a function as ``on_scale``.

    Attributes:
        job: name of the job.
        step: name of the step, as in ``scale``.
        tasks_before: number of tasks when it was decided.
        tasks_wanted: number of tasks that was decided.
        outcome: what became of the decision.
        text: the decision, its reason and its outcome in a sentence, as the status has it.
        duration_s: seconds from the request until all tasks ran again; None if nothing has changed.
    """

    job: str
    step: str
    tasks_before: int
    tasks_wanted: int
    outcome: ScalingOutcome
    text: str
    duration_s: float | None = None


Decide = Callable[[ScalingSample], Mapping[str, int] | None]
"""Function that returns the numbers of tasks that steps should have; None, or a step left out: no change."""

ScalingListener = Callable[[ScalingEvent], object]
"""Function that is called after each decision; what it returns is ignored."""

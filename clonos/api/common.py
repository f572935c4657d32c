"""Options that steps have in common, said once: methods take them as ``**common: Unpack[Common]``."""

from __future__ import annotations

from typing import Literal, TypedDict

StandbyMode = Literal["hot", "passive"]
"""Kind of standbys: "hot" ones repeat each step of their task, "passive" ones apply its checkpoints."""


class Common(TypedDict, total=False):
    """Options of each step.

    Args:
        name: unique name of the step; letters, digits, "_", "-" and ".", at most 64. Later versions of the job find the
            state of the step by it.
        parallelism: number of tasks of the step; None for that of the job.
        standby: "hot" for standbys that repeat each step and take over at once, "passive" for standbys that apply
            checkpoints; None for the setting of the job.
    """

    name: str | None
    parallelism: int | None
    standby: StandbyMode | None


class CommonOfSplit(Common, total=False):
    """Options of a step whose records may be aggregated in parts.

    Args:
        split_hot_keys: whether the tasks in front of the exchange by key aggregate the records of each batch first, so
            that a key with a large share of the records does not limit the task that it belongs to.
    """

    split_hot_keys: bool


class CommonWithEffects(Common, total=False):
    """Options of a step that calls a function of the user which may change something outside the job.

    Args:
        effects: whether it does. A keeper then holds the task's log.
        intercept: whether clocks, random numbers and HTTP clients of Python and of libraries are recorded in its
            functions, as the services of clonos are; what cannot be recorded raises. Without it, what the job says.
    """

    effects: bool
    intercept: bool

"""Skew: one task of a keyed step that gets far more records than the others and is busy, and its hottest key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from clonos.core.model.plan import Partitioning, Plan
from clonos.core.model.progress import TaskCounter
from clonos.core.scaling.autoscaler import HOT_KEY_ADVICE
from clonos.status import RescalePhase, Status, TaskState

TIMES_MEAN: Final = 3.0
"""Records of a hot task, as a multiple of the mean of the other tasks of its step."""

TIMES_MEAN_BY_KEY: Final = 1.5
"""The same for a task that has a hot key: with few tasks one key cannot make more of a difference."""

KEY_SHARE_MIN: Final = 0.3
"""Share of a hot key in the records of its step."""

BUSY_SHARE_MIN: Final = 0.5
"""Share of the time in which a hot task works: below it, skew delays nothing."""


def keyed_steps(plan: Plan) -> frozenset[str]:
    """Returns the names of the steps whose tasks share their records by key."""
    targets = {edge.target for edge in plan.edges if edge.partitioning is Partitioning.HASH}
    return frozenset(plan.vertices[target].name for target in targets if target is not None)


def hot_tasks(
    tasks: Iterable[TaskState],
    keyed: frozenset[str],
    records_of: Callable[[TaskState], float],
    busy_share_of: Callable[[TaskState], float],
) -> list[str]:
    """Describes the hottest task of each keyed step with skew: its share of the records, and that of a hot key.

    More tasks do not divide a hot key, so the text says what does."""
    steps: dict[str, list[TaskState]] = {}
    for task in tasks:
        steps.setdefault(task.name.rpartition("/")[0], []).append(task)
    found = []
    for step, of_step in steps.items():
        if step not in keyed or len(of_step) < 2:
            continue
        hottest = max(of_step, key=records_of)
        records, total = records_of(hottest), sum(map(records_of, of_step))
        if not records or busy_share_of(hottest) < BUSY_SHARE_MIN:
            continue
        share = records / total
        has_hot_key = share * hottest.hot_key_share > KEY_SHARE_MIN
        times = TIMES_MEAN_BY_KEY if has_hot_key else TIMES_MEAN
        if records * (len(of_step) - 1) > times * (total - records):
            of_key = f"the key {hottest.hot_key} alone {share * hottest.hot_key_share:.0%}"
            key = f", {of_key}{HOT_KEY_ADVICE}" if has_hot_key else ""
            found.append(f"{hottest.name} gets {share:.0%} of the records of {step}{key}")
    return found


def hot_tasks_of_run(status: Status, keyed: frozenset[str], seconds: float) -> list[str]:
    """Describes the same over a whole run, which took ``seconds``; nothing if its widths have changed, because its
    tasks have not shared all of its records."""
    if status.rescale is not None and status.rescale.phase in (RescalePhase.SWITCHING, RescalePhase.DONE):
        return []
    return hot_tasks(
        status.tasks,
        keyed,
        lambda task: task.counters.get(TaskCounter.RECORDS_IN, 0),
        lambda task: task.counters.get(TaskCounter.BUSY_US, 0) / 1e6 / max(seconds, 1e-9),
    )

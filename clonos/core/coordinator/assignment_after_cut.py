"""Places of the tasks that begin after a cut, which the coordinator foresees for warm-ups (protocol 6.12)."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.model.ids import TaskId
from clonos.core.model.plan import Plan
from clonos.core.placement.assignment import NO_ASSIGNMENT, Assignment, Readiness, place, replication_targets
from clonos.core.placement.placement_rules import rules_of
from clonos.core.wire.control_messages import View


def assignment_after_cut(
    state: CoordinatorState,
    view: View,
    before: Plan,
    plan: Plan,
    is_placed_anew: bool,
    placed: Sequence[Assignment] | None = None,
) -> tuple[Assignment, ...]:
    """Returns where the tasks of ``plan`` begin after a cut. ``before``: the plan of ``view``. ``placed``: has their
    slots, if these are known. See ``switch``."""
    assigned = [Assignment(p.slot, p.standbys, p.keepers) for p in view.placements]
    predecessors = [before.task_named(plan.task_name(task)) for task in plan.tasks]
    assignment = [NO_ASSIGNMENT if task is None else assigned[task] for task in predecessors]
    if is_placed_anew:
        assignment = [a if plan.is_journalled(TaskId(t)) else NO_ASSIGNMENT for t, a in enumerate(assignment)]
    if placed is not None:
        assignment = [was._replace(slot=now.slot) for was, now in zip(assignment, placed, strict=True)]
    targets = replication_targets(plan, state.options.standbys, state.options.keepers)
    ready = Readiness({}, {}, [state.completed.checkpoint] * len(plan.tasks), (None,) * len(plan.tasks))
    rules = rules_of(plan, state.options.placement, state.rules.driver_host)
    return place(targets, state.domains(), assignment, ready, state.hosts(), rules)

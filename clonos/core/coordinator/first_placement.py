"""First placement of a job: on which registered slots its tasks begin, and whether their rules hold (protocol 6)."""

from __future__ import annotations

from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.model.errors import Blame
from clonos.core.model.ids import SlotId
from clonos.core.model.options import PlacementKind
from clonos.core.placement.assignment import NO_ASSIGNMENT, Assignment, Readiness, place
from clonos.core.placement.placement_rules import broken_rules


def first_assignment(state: CoordinatorState, without: frozenset[SlotId]) -> tuple[Assignment, ...]:
    """Returns the assignment of the first view to the slots that have registered, without some of them."""
    snapshots = [entry.snapshot for entry in state.completed.tasks]
    ready = Readiness({}, {}, snapshots, state.ledger.incarnations)
    domains = {slot: domain for slot, domain in state.domains().items() if slot not in without}
    nowhere = [NO_ASSIGNMENT for _ in state.plan.tasks]
    return place(state.targets, domains, nowhere, ready, state.hosts(), state.rules)


def rules_broken_at_start(state: CoordinatorState, without: frozenset[SlotId]) -> str:
    """Returns which rules of the placement the first view would break, in words; empty if none."""
    if not state.rules.of:
        return ""
    slots = [assigned.slot for assigned in first_assignment(state, without)]
    return broken_rules(state.plan, state.rules, slots, state.domains(), state.hosts())


def surplus_slot(state: CoordinatorState, sizes: dict[str, int]) -> SlotId:
    """Returns a slot that is not needed: one without which all rules hold, from the domain that has the most slots, or
    with ``pack`` the fewest."""
    sign = -1 if state.options.placement is PlacementKind.PACK and len(sizes) > 2 else 1
    ranked = sorted(state.addresses.values(), key=lambda a: (sign * sizes[a.domain], a.domain, a.slot), reverse=True)
    fitting = (a.slot for a in ranked if not rules_broken_at_start(state, frozenset([a.slot])))
    return next(fitting, ranked[0].slot)


def refuse_rules(state: CoordinatorState, broken: str) -> None:
    """Fails the job, because no slot came where its rules want one."""
    hosts = state.hosts()
    found = sorted({hosts.get(address.domain, address.domain) for address in state.addresses.values()})
    text = (
        f"the rules of .on(...) cannot hold: {broken}. {len(state.addresses)} processes came, on"
        f" {', '.join(found)}. Correct the rule, raise spare_slots, or let the cluster start processes there."
    )
    state.fail(JobFailed(Blame.JOB, text))

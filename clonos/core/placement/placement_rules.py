"""Rules of a job about where its tasks run: on a host, with a process of their own, spread or packed (protocol 6).

A rule holds whenever a living slot allows it. Where none does, the task runs elsewhere, and an alarm says so, because
to go on in the wrong place is better than to wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clonos.core.model.ids import SlotId
from clonos.core.model.options import PlacementKind
from clonos.core.model.plan import ANYWHERE, PlacementRule, Plan


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """Rules of all tasks. ``hosts``: host of each domain, as far as it is known. ``of``: empty without rules."""

    of: tuple[PlacementRule, ...] = ()
    kind: PlacementKind = PlacementKind.SPREAD
    driver_host: str = ""

    @property
    def are_plain(self) -> bool:
        """Whether any slot is as good as another for every task, and tasks are spread."""
        return not self.of and self.kind is PlacementKind.SPREAD

    def of_task(self, task: int) -> PlacementRule:
        """Returns the rule of a task."""
        return self.of[task] if self.of else ANYWHERE

    def host_of(self, task: int) -> str:
        """Returns the host or domain that a task is to run on; "" for any."""
        rule = self.of_task(task)
        return self.driver_host if rule.on_driver else rule.host

    def is_on_host(self, task: int, domain: str, hosts: Mapping[str, str]) -> bool:
        """Returns whether a domain is where a task is to run."""
        wanted = self.host_of(task)
        return wanted in ("", domain, hosts.get(domain, domain))

    def strictness(self, task: int) -> tuple[bool, bool]:
        """Returns an order in which tasks are placed: those that few slots fit come first."""
        return not self.host_of(task), not self.of_task(task).is_exclusive


PLAIN_RULES = PlacementRules()


def rules_of(plan: Plan, kind: PlacementKind, driver_host: str) -> PlacementRules:
    """Returns the rules of the tasks of a plan."""
    rules = tuple(plan.vertices[vertex].rule for vertex in plan.vertex_of)
    return PlacementRules(rules if any(rule != ANYWHERE for rule in rules) else (), kind, driver_host)


def broken_rules(
    plan: Plan,
    rules: PlacementRules,
    slots: Sequence[SlotId | None],
    domains: Mapping[SlotId, str],
    hosts: Mapping[str, str],
) -> str:
    """Returns a sentence for each rule that the tasks on these slots do not follow; empty if there is none.

    ``slots``: of each task, None while it waits.
    """
    if not rules.of:
        return ""
    tasks_on: dict[SlotId, list[int]] = {}
    for task, slot in enumerate(slots):
        if slot is not None:
            tasks_on.setdefault(slot, []).append(task)
    sentences: dict[str, None] = {}
    for slot, tasks in sorted(tasks_on.items()):
        domain = domains[slot]
        for task in tasks:
            name = plan.task_name(task)
            if not rules.is_on_host(task, domain, hosts):
                wanted, found = rules.host_of(task), hosts.get(domain, domain)
                where = f"{found} ({domain})" if found != domain else domain
                sentences[f"{name} is to run on {_shown(rules, task, wanted)}, and runs on {where}"] = None
            if rules.of_task(task).is_exclusive and len(tasks) > 1:
                others = ", ".join(plan.task_name(other) for other in tasks if other != task)
                sentences[f"{name} is to have a process of its own, and shares one with {others}"] = None
    return "; ".join(sentences)


def _shown(rules: PlacementRules, task: int, wanted: str) -> str:
    return f"the driver's host {wanted}" if rules.of_task(task).on_driver else wanted

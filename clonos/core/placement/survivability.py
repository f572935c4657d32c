"""Survivability: what the loss of one domain would cost, and whether the sharing depth suffices (protocol 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clonos.core.model.ids import SlotId, TaskId
from clonos.core.model.plan import Partitioning, Plan
from clonos.core.placement.assignment import Assignment, ReplicationTargets

LASTING_MS = 10_000
"""Time after which a problem of the placement is raised: until then another slot may come and be seeded."""

NANOSECONDS_PER_MS = 1_000_000


def what_is_not_survived(
    plan: Plan, targets: Sequence[ReplicationTargets], assignment: Sequence[Assignment], domains: Mapping[SlotId, str]
) -> str:
    """Returns a sentence on what the loss of one domain would cost and which tasks already wait; empty if nothing."""
    without_standby, without_keeper, held_back, without_replicas = [], [], [], []
    need_keepers, replicas = frozenset(plan.with_keepers), plan.replicas or 0
    for task, (target, assigned) in enumerate(zip(targets, assignment, strict=True)):
        own = _domain_of(assigned, domains)
        elsewhere = [sum(domains[s] != own for s in backups) for backups in (assigned.standbys, assigned.keepers)]
        if elsewhere[0] < target.standbys:
            without_standby.append(task)
        if task in plan.feeding and len({domains[s] for s in assigned.keepers} - {own}) < replicas:
            without_replicas.append(task)
        if task not in need_keepers:
            continue
        if target.keepers and assigned.slot in domains and not assigned.keepers:
            held_back.append(task)
        elif elsewhere[1] < target.keepers:
            without_keeper.append(task)
    sentences = []
    if without_standby:
        sentences.append(
            f"{len(without_standby)} tasks ({names_of(plan, without_standby)}) have too few standbys in another domain:"
            " after the loss of their domain they restore from the store, which takes longer"
        )
    if without_keeper:
        sentences.append(
            f"{len(without_keeper)} tasks ({names_of(plan, without_keeper)}) have too few keepers in another domain:"
            " if a task dies together with its keepers, external effects may be repeated with other content"
        )
    if held_back:
        sentences.append(
            f"{len(held_back)} tasks ({names_of(plan, held_back)}) have no keeper: their external output waits, and"
            " with it every checkpoint, until there is another slot"
        )
    if without_replicas:
        sentences.append(
            f"{len(without_replicas)} tasks ({names_of(plan, without_replicas)}) have keepers in fewer than {replicas}"
            " other domains: their logs are shared with all tasks downstream, as without replicas"
        )
    return "; ".join(sentences)


def _domain_of(assigned: Assignment, domains: Mapping[SlotId, str]) -> str:
    return "" if assigned.slot is None else domains.get(assigned.slot, "")


def names_of(plan: Plan, tasks: Sequence[int]) -> str:
    """Returns the names of the first five tasks, for a message."""
    shown = ", ".join(plan.task_name(task) for task in tasks[:5])
    return shown + (", ..." if len(tasks) > 5 else "")


def depth_problem(plan: Plan, assignment: Sequence[Assignment], domains: Mapping[SlotId, str]) -> str | None:
    """Returns why the sharing depth is too small for this assignment, or None. ``domains`` has the living slots.

    A log survives if no run of depth + 1 consecutive tasks of a path dies while a task further downstream lives. The
    tasks of a domain die together, so no run inside a domain that feeds another domain may be longer than the depth.
    """
    if plan.sharing_depth is None:
        return None
    worst, where = max(_runs_that_feed_other_domains(plan, assignment, domains), default=(0, ""))
    if worst <= plan.sharing_depth:
        return None
    return (
        f"sharing depth {plan.sharing_depth} is too small for the placement: domain {where} holds {worst} consecutive"
        " tasks of a path that continues in another domain, and their logs would be lost with it. Its loss would end in"
        f" a rollback: use sharing_depth={worst} or more, or full, or more domains."
    )


def _runs_that_feed_other_domains(
    plan: Plan, assignment: Sequence[Assignment], domains: Mapping[SlotId, str]
) -> list[tuple[int, str]]:
    """Returns (length, domain) of the runs inside a domain whose last task feeds another domain.

    It uses dynamic programming in topological order. On an edge that connects all tasks with all, only the longest run
    of each (vertex, domain) matters, so that the cost does not depend on the number of channels.
    """
    domain_of = [_domain_of(assigned, domains) for assigned in assignment]
    runs = [1] * len(assignment)
    longest: list[dict[str, int]] = []
    found: list[tuple[int, str]] = []
    for vertex in range(len(plan.vertices)):
        tasks = _tasks_of(plan, vertex)
        here = {domain_of[task] for task in tasks}
        for edge in plan.edges:
            if edge.target != vertex:
                continue
            if edge.partitioning is Partitioning.FORWARD:
                for before, task in zip(_tasks_of(plan, edge.source), tasks, strict=True):
                    if domain_of[before] == domain_of[task]:
                        runs[task] = max(runs[task], runs[before] + 1)
                    else:
                        found.append((runs[before], domain_of[before]))
                continue
            for task in tasks:
                runs[task] = max(runs[task], longest[edge.source].get(domain_of[task], 0) + 1)
            found += [(run, domain) for domain, run in longest[edge.source].items() if here - {domain}]
        best: dict[str, int] = {}
        for task in tasks:
            best[domain_of[task]] = max(best.get(domain_of[task], 0), runs[task])
        longest.append(best)
    return [(run, domain) for run, domain in found if domain]


def _tasks_of(plan: Plan, vertex: int) -> range:
    return range(plan.first_task[vertex], plan.first_task[vertex] + plan.vertices[vertex].parallelism)


def losses_survived(
    plan: Plan, assignment: Sequence[Assignment], keepers: Mapping[TaskId, int], domains: Mapping[SlotId, str]
) -> tuple[int | None, ...]:
    """Returns for each task how many further domains may be lost, its own among them, before output is lost or
    contradicted or the job has to roll back. None: any number of them.

    ``keepers``: the number of domains besides its own in which a keeper of the task holds its whole log. A task with
    external effects survives as many losses. The log of another task is in all tasks that depend on it, unless a
    sharing depth limits that: then 1 stands for at least 1.
    """
    need_keepers = frozenset(plan.with_keepers)
    longest: dict[str, int] = {}
    if plan.sharing_depth is not None:
        for run, domain in _runs_that_feed_other_domains(plan, assignment, domains):
            longest[domain] = max(longest.get(domain, 0), run)
    found: list[int | None] = []
    for task, assigned in zip(plan.tasks, assignment, strict=True):
        if task in need_keepers:
            found.append(keepers.get(task, 0))
        elif plan.sharing_depth is None or task not in plan.feeding:
            found.append(None)
        else:
            found.append(int(longest.get(_domain_of(assigned, domains), 0) <= plan.sharing_depth))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Problem:
    """Problem that stands since ``since_ns``."""

    text: str
    since_ns: int
    is_raised: bool = False


class StandingAlarms:
    """Problems of the placement. Most pass as soon as another slot has come, so only lasting ones are raised."""

    def __init__(self) -> None:
        self._problems: dict[str, _Problem] = {}  # by subject

    def note(self, subject: str, text: str, now_ns: int) -> None:
        """Notes the present problem of a subject; "" if it has none."""
        known = self._problems.get(subject)
        if not text:
            self._problems.pop(subject, None)
        elif known is None or known.text != text:
            self._problems[subject] = _Problem(text, now_ns if known is None else known.since_ns)

    def due(self, now_ns: int) -> list[str]:
        """Returns the problems that have lasted for ``LASTING_MS``, each once."""
        due = []
        for subject, problem in self._problems.items():
            if not problem.is_raised and now_ns - problem.since_ns >= LASTING_MS * NANOSECONDS_PER_MS:
                self._problems[subject] = replace(problem, is_raised=True)
                due.append(problem.text)
        return due

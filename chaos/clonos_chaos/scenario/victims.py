"""Victims of a fault: tasks by step and pattern, drawn from a seed, so that a seed repeats its choice."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from clonos.core.model.errors import JobError
from clonos_chaos.scenario.scenario import FaultSpec, Pattern


@dataclass(frozen=True, slots=True)
class Shape:
    """Job as tasks by name, with the pairs of tasks that have a channel."""

    tasks: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    sources: tuple[str, ...] = ()


def steps_of(task: str) -> list[str]:
    """Returns the steps that a task runs, by name: ``read,map/0`` has two."""
    return [step for step in re.split(r"[^A-Za-z0-9_.-]+", task.rpartition("/")[0]) if step]


def tasks_of(shape: Shape, step: str) -> list[str]:
    """Returns the tasks that run a step; all tasks for an empty step. Raises JobError: no task runs it."""
    found = [task for task in shape.tasks if not step or step in steps_of(task) or step == task]
    if not found:
        known = sorted({name for task in shape.tasks for name in steps_of(task)})
        raise JobError(f"the scenario's victim is {step!r}, but the job has no such step; there are: {known}.")
    return found


def choose(fault: FaultSpec, shape: Shape, rng: Random, first: str = "") -> list[str]:
    """Chooses the tasks that a fault hits; the first one is the victim (``first``, where it is known)."""
    if fault.pattern is Pattern.DRIVER:
        return []
    victims = tasks_of(shape, fault.victim)
    victim = first or rng.choice(victims)
    others = [task for task in shape.tasks if task != victim]
    match fault.pattern:
        case Pattern.ONE | Pattern.IN_A_ROW | Pattern.WITH_STANDBY | Pattern.STANDBY:
            return [victim]
        case Pattern.LINKED:
            return [victim, _one(rng, fault, _fed_by(shape, victim) or _feeding(shape, victim))]
        case Pattern.UNLINKED:
            joined = {*_fed_by(shape, victim), *_feeding(shape, victim)}
            return [victim, _one(rng, fault, [task for task in others if task not in joined])]
        case Pattern.SIBLINGS:
            same = victim.rpartition("/")[0]
            return [victim, _one(rng, fault, [task for task in others if task.rpartition("/")[0] == same])]
        case Pattern.AT_ONCE:
            return [victim, *rng.sample(others, min(fault.count - 1, len(others)))]
        case Pattern.LAYER:
            return [victim, *(task for task in others if task.rpartition("/")[0] == victim.rpartition("/")[0])]
        case Pattern.ALL:
            return [victim, *others]


def _one(rng: Random, fault: FaultSpec, tasks: Sequence[str]) -> str:
    if not tasks:
        raise JobError(f"the pattern {fault.pattern} finds no second task beside {fault.victim or 'any victim'!r}.")
    return rng.choice(tasks)


def _fed_by(shape: Shape, task: str) -> list[str]:
    return _in_order(shape, {receiver for sender, receiver in shape.edges if sender == task})


def _feeding(shape: Shape, task: str) -> list[str]:
    return _in_order(shape, {sender for sender, receiver in shape.edges if receiver == task})


def _in_order(shape: Shape, tasks: Collection[str]) -> list[str]:
    return [task for task in shape.tasks if task in tasks]

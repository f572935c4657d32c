"""Numbers of tasks with which a job starts: those that the user asks for, the stored ones, or those of the code."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from clonos.core.checkpoint.plan_shape import PlanShape
from clonos.core.model.errors import JobError
from clonos.core.model.plan import Plan, refusals
from clonos.operators.job_image import JobImage

logger = logging.getLogger("clonos.run")


class WidthMalformed(JobError):
    """A value of ``widths``, or of a command, does not name a step and its number of tasks."""

    given: str

    def __str__(self) -> str:
        return f"{self.given!r} gives no step one number of tasks: STEP=TASKS is expected, such as count=4."


class WidthsRefused(JobError):
    """Steps cannot have the numbers of tasks that are asked for."""

    job: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"job {self.job} cannot start with other numbers of tasks: {'; '.join(self.reasons)}. Correct widths="
            " (--width), or leave these steps out of it and their parallelism= as it was."
        )


def as_stored(plan: Plan, stored: PlanShape) -> Plan:
    """Returns a plan with the numbers of tasks that a stored one has."""
    names = {vertex.name for vertex in plan.vertices}
    return plan.with_widths({was.name: was.parallelism for was in stored.vertices if was.name in names})


def at_widths(
    image: JobImage, asked: Sequence[str], stored: PlanShape | None, next_widths: Mapping[str, int] | None = None
) -> JobImage:
    """Returns the job with the numbers of tasks with which it starts, and logs why they are not those of the code.

    ``asked`` counts first: ``step=tasks``. Without it a job that goes on from a ``stored`` plan keeps the number of
    that, or of the ``next_widths`` that it was about to get, unless the code has another number since.

    Raises: WidthMalformed, WidthsRefused.
    """
    plan = image.plan if stored is None else as_stored(image.plan, stored)
    group = {vertex.name: number for vertex, number in zip(plan.vertices, plan.scaling_group, strict=True)}
    wanted = _asked(image, asked)
    of_groups = {group.get(name) for name in wanted}
    before = {} if stored is None else {was.name: was.declared for was in stored.vertices}
    changed = {
        vertex.name: width
        for vertex in plan.vertices
        if group[vertex.name] not in of_groups
        for is_as_before in (before.get(vertex.name, vertex.declared) == vertex.declared,)
        for width in ((next_widths or {}).get(vertex.name, vertex.parallelism) if is_as_before else vertex.declared,)
        if width != vertex.parallelism
    }
    if reasons := refusals(plan, changed | wanted):
        raise WidthsRefused(plan.job_name, reasons)
    found = plan.with_widths(changed | wanted)
    of_code = {group[v.name] for v in plan.vertices if before.get(v.name, v.declared) != v.declared}
    for vertex, was in zip(found.vertices, plan.vertices, strict=True):
        tasks = f"{vertex.parallelism} task{'s'[: vertex.parallelism != 1]}"
        if group[vertex.name] in of_groups:
            why = "as --width says"
        elif group[vertex.name] in of_code:
            why = "as the code says"
        else:
            why = "as it did before" if vertex.parallelism == was.parallelism else "as a change of the running job says"
        if vertex.parallelism != vertex.declared:
            logger.warning("%s runs in %s, %s (the code says %d)", vertex.name, tasks, why, vertex.declared)
        elif vertex.parallelism != was.parallelism:
            logger.warning("%s runs in %s, %s (it ran in %d)", vertex.name, tasks, why, was.parallelism)
    return replace(image, plan=found)


def _asked(image: JobImage, asked: Sequence[str]) -> dict[str, int]:
    """Returns the numbers of tasks that a user asks for, by the name of the vertex.

    Raises: WidthMalformed, WidthsRefused.
    """
    return by_vertex(image, pairs_of(asked))


def by_vertex(image: JobImage, asked: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns numbers of tasks by the name of the vertex; ``asked`` has them by the name of a step or a vertex.

    Raises: WidthsRefused: there is no such step, or two steps of one group have other numbers.
    """
    plan, found, first_of = image.plan, dict[str, int](), dict[int, tuple[str, int]]()
    vertex_of = {node.step: number for number, vertex in enumerate(image.vertices) for node in vertex.nodes}
    vertex_of |= {vertex.name: number for number, vertex in enumerate(image.vertices)}
    for step, tasks in asked:
        number = vertex_of.get(step)
        if number is None:
            names = sorted({node.step for vertex in image.vertices for node in vertex.nodes})
            raise WidthsRefused(plan.job_name, (f'there is no step "{step}" among {", ".join(names)}',))
        other, as_many = first_of.setdefault(plan.scaling_group[number], (step, tasks))
        if as_many != tasks:
            raise WidthsRefused(plan.job_name, (_contradiction(plan, vertex_of, other, as_many, step, tasks),))
        found[plan.vertices[number].name] = tasks
    return found


def widths_of(asked: Sequence[str]) -> dict[str, int]:
    """Returns the numbers of texts such as ``count=4``. Raises: WidthMalformed: also if a step has two numbers."""
    found: dict[str, int] = {}
    for step, tasks in pairs_of(asked):
        if found.setdefault(step, tasks) != tasks:
            raise WidthMalformed(f"{step}={found[step]},{step}={tasks}")
    return found


def pairs_of(asked: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields the steps and numbers of texts such as ``count=4`` and ``count=4,sum=2``. Raises: WidthMalformed."""
    for each in filter(None, map(str.strip, ",".join(asked).split(","))):
        step, _, tasks = each.rpartition("=")
        if not step or not tasks.isdecimal():
            raise WidthMalformed(each)
        yield step.strip(), int(tasks)


def _contradiction(
    plan: Plan, vertex_of: Mapping[str, int], first: str, tasks: int, step: str, other_tasks: int
) -> str:
    """Returns why two steps cannot have different numbers of tasks, in words."""
    if step == first:
        return f'"{step}" cannot have {tasks} tasks and {other_tasks}'
    both = f'"{first}" cannot have {tasks} tasks and "{step}" {other_tasks}'
    if vertex_of[first] == vertex_of[step]:
        return f"{both}: they run in the same tasks"
    return f"{both}: their tasks are connected one to one, so that both have one number"

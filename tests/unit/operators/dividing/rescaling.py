"""Runs of a job that go on with another number of tasks at a barrier, as the driver of the tests runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clonos.core.task.watermarks import InputWatermarks
from clonos.operators.job_image import JobImage
from clonos.operators.state.keyed_state import StateBackend
from tests.unit.operators.dividing.division_twins import divided
from tests.unit.operators.driver import Run


def scaled(image: JobImage, width: int) -> JobImage:
    """The job with ``width`` tasks of each vertex but the sources."""
    plan = image.plan
    widths = {vertex.name: width for vertex in plan.vertices if not vertex.is_source}
    return replace(image, plan=plan.with_widths(widths))


def rescaled(running: Run, checkpoint: int, width: int) -> Run:
    """A run that goes on with other widths where this one has taken a barrier."""
    taken, old = running.barrier(checkpoint), running.plan
    running.close()
    image = scaled(running.image, width)
    restored: list[Any] = []
    before: list[int] = []  # for each new task an old task of its vertex
    for number, vertex in enumerate(image.plan.vertices):
        tasks = range(old.first_task[number], old.first_task[number] + old.vertices[number].parallelism)
        before += [tasks[0]] * vertex.parallelism
        if vertex.is_source:
            restored += [taken[task] for task in tasks]
            continue
        declared = image.vertices[number].declared_state()
        pieces: Sequence[Sequence[bytes]] = [taken[task][0] for task in tasks]
        images = divided(declared, pieces, vertex.parallelism, image.plan.max_parallelism)
        restored += [([StateBackend(each).changes(full=True)], b"") for each in images]
    found = Run(image, restored, running.clock)
    found.written = running.written
    found.watermarks = {
        task: InputWatermarks(found.channels_of(task), running.watermarks[before[task]].event_time())
        for task in found.plan.tasks
    }
    return found

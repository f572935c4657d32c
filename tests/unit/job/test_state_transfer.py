"""Checks before the state of a savepoint is transferred to a job with other tasks."""

from __future__ import annotations

import msgspec

from clonos.connectors import stdout, values
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, metadata_of_start
from clonos.core.model.options import Options
from clonos.core.model.plan import refusals
from clonos.job import Job
from clonos.job.continuing.state_transfer import differences_of_transfer
from clonos.job.description import graph_of
from clonos.operators.job_image import JobImage


def _image(*, total_parallelism: int = 2, has_key: bool = True, has_more: bool = False) -> JobImage:
    job = Job("numbers")
    numbers = job.source(values(range(10)), name="read", parallelism=1)
    if has_more:
        numbers = numbers.union(job.source(values(range(3)), name="read-more", parallelism=1))
    if has_key:
        keyed = numbers.key_by(lambda n: n % 3)
        keyed.count(name="total", parallelism=total_parallelism).sink(stdout(), name="show")
    numbers.limit(5, name="first").sink(stdout(), name="show-first")
    return graph_of(job).compile(Options(), parallelism=1)


def _metadata(image: JobImage, *ended: str) -> CheckpointMetadata:
    found = metadata_of_start(image.plan, "numbers-1", 1)
    return msgspec.structs.replace(
        found,
        tasks=tuple(
            msgspec.structs.replace(entry, final=image.plan.task_name(entry.task) in ended) for entry in found.tasks
        ),
    )


def test_state_of_a_step_whose_tasks_stay_fits_a_job_with_a_new_step_after_another_exchange() -> None:
    before, now = _image(has_key=False), _image()
    assert differences_of_transfer(_metadata(before), now, {0: "read"}) == ()


def test_keyed_state_fits_a_job_with_more_tasks() -> None:
    before, now = _image(), _image(total_parallelism=3)
    assert differences_of_transfer(_metadata(before), now, {0: "read"}) == ()


def test_a_step_that_cannot_be_divided_keeps_the_number_of_tasks_with_step_and_reason() -> None:
    plan = _image().plan
    (name,) = (vertex.name for vertex in plan.vertices if "first" in {step.name for step in vertex.steps})
    assert any("first cannot be divided, because it counts" in reason for reason in refusals(plan, {name: 2}))
    (total,) = (vertex.name for vertex in plan.vertices if "total" in {step.name for step in vertex.steps})
    assert refusals(plan, {total: 5}) == ()


def test_a_task_that_had_ended_and_would_get_new_input_is_named() -> None:
    before, now = _image(), _image(has_more=True)
    ended = [before.plan.task_name(task) for task in before.plan.tasks]
    found = differences_of_transfer(_metadata(before, *ended), now, {0: "read"})
    assert any("had ended, in contrast to those that send to it now" in text for text in found), found

"""Records of epochs: the folders beside the store, and the tasks that the option ``record`` names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from clonos.config import RunOptions
from clonos.core.model.errors import JobError
from clonos.core.model.ids import TaskId
from clonos.core.model.missing_names import nearest
from clonos.core.model.plan import Plan
from clonos.io.store.object_files import LocalFiles
from clonos.io.store.store import CheckpointStore
from clonos.job.starting import default_store
from clonos.operators.job_image import JobImage
from clonos_standby.driver.epoch_recorder import Recording

RECORDED: Final = "recorded"
"""Ending of the name of the folder beside the store that has the records."""

ALL: Final = "all"


def recording_of(run: RunOptions, image: JobImage, folder: Path) -> Recording | None:
    """Returns what is recorded, None for nothing. ``folder``: for the records, if the options name none."""
    if not run.record:
        return None
    root = Path(run.record_folder).absolute() if run.record_folder else folder
    return Recording(root, partial(_chosen, image, run.record), run.record_keep, run.record_limit_bytes)


def with_sink_digests(run: RunOptions, image: JobImage) -> JobImage:
    """Returns the job with digests of the rows that the sinks of the recorded tasks are given."""
    recorded = {image.plan.vertex_of[task] for task in _chosen(image, run.record, image.plan)}
    vertices = [
        replace(each, has_sink_digests=True) if number in recorded else each
        for number, each in enumerate(image.vertices)
    ]
    return replace(image, vertices=tuple(vertices))


def check_record(image: JobImage, run: RunOptions) -> None:
    """Raises JobError for a name that the job does not have."""
    _chosen(image, run.record, image.plan, is_checked=True)


def _chosen(image: JobImage, names: tuple[str, ...], plan: Plan, is_checked: bool = False) -> tuple[TaskId, ...]:
    """Returns the tasks of the names. A name that the plan lacks now is refused if ``is_checked``, else passed over."""
    if ALL in names:
        return tuple(plan.tasks)
    vertex_of = {node.step: number for number, vertex in enumerate(image.vertices) for node in vertex.nodes}
    vertex_of |= {vertex.name: number for number, vertex in enumerate(plan.vertices)}
    found: set[TaskId] = set()
    for name in names:
        task = plan.task_named(name)
        if task is not None:
            found.add(task)
        elif name in vertex_of:
            found.update(each for each in plan.tasks if plan.vertex_of[each] == vertex_of[name])
        elif is_checked:
            hint = nearest(name, (*vertex_of, *map(plan.task_name, plan.tasks)))
            hint = hint or f"It has: {', '.join(vertex_of)}; or write all."
            raise JobError(f"record names {name!r:.100}, and the job has no such step or task. {hint}")
    return tuple(sorted(found))


def epochs_folder(name: str, store: CheckpointStore, ending: str = "epochs") -> Path:
    """Returns the folder for records of epochs: beside the store, or beside a default one if the store is not a folder.
    ``ending``: of its name."""
    root = store.files.root if isinstance(store.files, LocalFiles) else Path(default_store(name)).absolute()
    return root.with_name(f"{root.name}.{ending}")

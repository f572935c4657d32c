"""What a start withdraws of tasks that do not run any more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry, metadata_of_start
from clonos.core.model.ids import CheckpointId
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.io.store.object_files import ObjectMissing
from clonos.job.continuing.withdrawal import WithdrawalImpossible, retired_since, stages_of

_EDGES = (Edge(0, None, Partitioning.EXTERNAL, 0),)


def _checkpoint(number: int, tasks: int, **fields: Any) -> CheckpointMetadata:
    """A checkpoint of a job that writes outside in this many tasks."""
    plan = Plan("job", (Vertex("out", tasks, is_source=True, has_effects=True),), _EDGES)
    return structs.replace(metadata_of_start(plan, "job-1", 1), checkpoint=CheckpointId(number), **fields)


def _no_head(_: TaskEntry) -> None:
    """The snapshot of a task that has none."""


def test_a_task_that_has_not_run_since_the_checkpoint_has_nothing_to_withdraw() -> None:
    chosen = _checkpoint(7, 1, retired={"out/1": 5})
    assert retired_since(chosen, []) == {"out/1": 5}, "it stays known"
    assert stages_of([chosen, _checkpoint(8, 1, retired={"out/1": 5})], False, _no_head) == ()


def test_a_task_that_has_run_again_since_the_checkpoint_is_withdrawn_from_its_next_row_on() -> None:
    chosen = _checkpoint(7, 1, retired={"out/1": 5})
    cut = structs.replace(chosen, widths=(("out", 2),), is_cut=True)
    assert stages_of([cut], False, _no_head) == ((("out/1", 5),),)


def test_a_start_is_refused_if_the_snapshot_before_a_change_of_widths_is_missing() -> None:
    def missing(entry: TaskEntry) -> None:
        if entry.snapshot == 8:
            raise ObjectMissing("store", "snapshots/0/8")

    def at(number: int, tasks: int) -> CheckpointMetadata:
        found = _checkpoint(number, tasks)
        entries = tuple(structs.replace(entry, snapshot=CheckpointId(number)) for entry in found.tasks)
        return structs.replace(found, tasks=entries)

    with pytest.raises(WithdrawalImpossible, match="after checkpoint 8, and its snapshot snapshots/0/8 is missing"):
        stages_of([at(7, 1), at(8, 1), at(9, 2)], False, missing)
    assert stages_of([at(7, 1), at(8, 1), at(9, 1)], False, missing) == (), "no key has come to another task"

"""What the result of a job says about its end."""

from __future__ import annotations

import pytest

from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import CheckpointId
from clonos.core.model.progress import TaskPhase
from clonos.job.results import result_of
from clonos.status import Phase, Status, TaskState

TASK = TaskState("read/0", 1, 7, 4711, "process-1", TaskPhase.LIVE, {}, 1, 1)


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        ((), "etl was stopped before it had begun: nothing was read or written"),
        ((TASK,), "etl was aborted; --resume continues from the last checkpoint (checkpoint 3)"),
    ],
)
def test_an_aborted_job_names_a_checkpoint_only_if_it_had_begun(tasks: tuple[TaskState, ...], text: str) -> None:
    status = Status("etl", Phase.ENDED, checkpoint=3, tasks=tasks)
    result = result_of(JobDone(Ending.ABORTED, CheckpointId(3)), status)
    assert result.was_aborted
    assert result.summary() == text

"""The ledger of checkpoints: which acknowledgement of a task stands (protocol 5)."""

from __future__ import annotations

from msgspec.structs import replace

from clonos.core.coordinator.checkpoint_ledger import (
    TIMES_REMEMBERED,
    CheckpointHistory,
    CheckpointTimes,
    Pending,
    with_acknowledgement,
)
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.wire.control_messages import Snapshotted

ACKNOWLEDGEMENT = Snapshotted(TaskId(0), Incarnation(1), CheckpointId(4), ("snapshot",), 40, (), final=False)


def test_an_acknowledgement_made_for_the_checkpoint_precedes_a_final_one() -> None:
    pending = with_acknowledgement(Pending(CheckpointId(4), 0, False, {}), ACKNOWLEDGEMENT)
    final = replace(ACKNOWLEDGEMENT, checkpoint=CheckpointId(3), objects=("other",), final=True)
    assert with_acknowledgement(pending, final) is pending
    assert with_acknowledgement(pending, ACKNOWLEDGEMENT) is pending


def test_the_history_has_the_times_of_the_last_checkpoints_in_the_order_in_which_they_began() -> None:
    history = CheckpointHistory()
    for number in range(1, TIMES_REMEMBERED + 3):
        history.begin(CheckpointId(number), number * 10)
    history.complete(CheckpointId(TIMES_REMEMBERED), 5_000)
    history.complete(CheckpointId(TIMES_REMEMBERED), 6_000)  # announced again
    history.complete(CheckpointId(1), 5_000)  # no longer remembered
    assert len(history.times) == TIMES_REMEMBERED
    assert history.times[0] == CheckpointTimes(CheckpointId(3), 30)
    assert history.times[-3] == CheckpointTimes(CheckpointId(TIMES_REMEMBERED), TIMES_REMEMBERED * 10, 5_000)


def test_the_history_has_the_size_of_what_the_tasks_have_stored_for_a_checkpoint() -> None:
    history = CheckpointHistory()
    history.begin(CheckpointId(4), 10)
    history.begin(CheckpointId(5), 20)
    for task, size_bytes in ((0, 100), (1, 20), (0, 101), (1, 0)):  # a successor stores another object; 0 is unknown
        history.store(replace(ACKNOWLEDGEMENT, task=TaskId(task), size_bytes=size_bytes))
    history.store(replace(ACKNOWLEDGEMENT, checkpoint=CheckpointId(3), size_bytes=7))  # not remembered
    assert [times.size_bytes for times in history.times] == [121, None]

"""The ledger of checkpoints: which acknowledgement of a task stands (protocol 5)."""

from __future__ import annotations

from msgspec.structs import replace

from clonos.core.coordinator.checkpoint_ledger import Pending, with_acknowledgement
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.wire.control_messages import Snapshotted

ACKNOWLEDGEMENT = Snapshotted(TaskId(0), Incarnation(1), CheckpointId(4), ("snapshot",), 40, (), final=False)


def test_an_acknowledgement_made_for_the_checkpoint_precedes_a_final_one() -> None:
    pending = with_acknowledgement(Pending(CheckpointId(4), 0, False, {}), ACKNOWLEDGEMENT)
    final = replace(ACKNOWLEDGEMENT, checkpoint=CheckpointId(3), objects=("other",), final=True)
    assert with_acknowledgement(pending, final) is pending
    assert with_acknowledgement(pending, ACKNOWLEDGEMENT) is pending

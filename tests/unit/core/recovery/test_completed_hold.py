"""Hold on the news of completed checkpoints: what reaches a slot in place of a message."""

from __future__ import annotations

from clonos.core.model.ids import CheckpointId
from clonos.core.recovery.completed_hold import CompletedHold
from clonos.core.wire.control_messages import Completed


def completed(checkpoint: int) -> Completed:
    return Completed(CheckpointId(checkpoint), 1, ())


def test_a_checkpoint_stays_unknown_to_the_slots_until_it_is_released() -> None:
    hold = CompletedHold(CheckpointId(3))
    assert hold.passed(completed(3)) == completed(3)
    assert hold.passed(completed(4)) is None
    hold.release(CheckpointId(4))
    assert hold.passed(completed(4)) == completed(4)


def test_a_slot_learns_of_a_released_checkpoint_while_a_later_one_is_held() -> None:
    hold = CompletedHold(CheckpointId(0))
    assert hold.passed(completed(1)) is None
    assert hold.passed(completed(2)) is None
    hold.release(CheckpointId(1))
    assert hold.passed(completed(2)) == completed(1)
    hold.release(CheckpointId(2))
    hold.release(CheckpointId(1))  # too late: a later one counts for it
    assert hold.passed(completed(2)) == completed(2)

"""Which sender may say what: a slot speaks for the lives that the view puts there, the coordinator for views.

The holder of a slot's key may send any message as that slot. What it says of other slots costs its connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, SlotId, TaskId, view_name
from clonos.core.model.plan import Plan
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Length


def sender_name(sender: SlotId) -> str:
    """A sender as people read it."""
    return "the coordinator" if sender == COORDINATOR else f"slot {sender}"


def check_lengths(sender: SlotId, lengths: Sequence[Length], plan: Plan) -> None:
    """Raises: MessageMalformed, if there are more lengths than logs and journals."""
    if len(lengths) > 2 * len(plan.tasks):
        raise MessageMalformed(sender_name(sender), f"{len(lengths)} lengths of logs of {len(plan.tasks)} tasks")


def check_life(sender: SlotId, task: TaskId, incarnation: int, view: View) -> None:
    """Checks that ``sender`` may speak for an incarnation. One that the view does not name is ignored elsewhere.

    Raises: MessageMalformed, if the view puts it into another slot.
    """
    if not view.placements:
        return
    if not 0 <= task < len(view.placements):
        raise MessageMalformed(sender_name(sender), f"task {task}, the plan has {len(view.placements)}")
    placement = view.placements[task]
    if placement.incarnation == incarnation and placement.slot != sender:
        what = f"it speaks for task {task}.{view_name(incarnation)}, which lives in slot {placement.slot}"
        raise MessageMalformed(sender_name(sender), what)


def check_itself(sender: SlotId, named: SlotId) -> None:
    """Raises: MessageMalformed, if a message that says which slot it is from names another one than its sender."""
    if named != sender:
        raise MessageMalformed(sender_name(sender), f"it speaks for slot {named}")


def fits(view: View, plan: Plan) -> bool:
    """Whether a view places each task of the plan, in order."""
    return [placement.task for placement in view.placements] == list(plan.tasks)

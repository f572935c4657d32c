"""Authorization of senders: a slot speaks for the incarnations that the view places in it (protocol 4).

The holder of a slot's key may send any message in the name of that slot. A message in the name of another slot costs
the connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, SlotId, TaskId, view_name
from clonos.core.model.plan import Plan
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Length


def sender_name(sender: SlotId) -> str:
    """Returns the name of a sender for messages."""
    return "the coordinator" if sender == COORDINATOR else f"slot {sender}"


def check_lengths(sender: SlotId, lengths: Sequence[Length], plan: Plan) -> None:
    """Checks that a message has no more lengths than there are logs and journals.

    Raises: MessageMalformed, if it has.
    """
    if len(lengths) > 2 * len(plan.tasks):
        raise MessageMalformed(sender_name(sender), f"{len(lengths)} lengths of logs of {len(plan.tasks)} tasks")


def check_life(sender: SlotId, task: TaskId, incarnation: int, view: View) -> None:
    """Checks that ``sender`` may speak for an incarnation.

    Incarnations that the view does not name are ignored elsewhere.

    Raises: MessageMalformed, if the view places the incarnation in another slot.
    """
    if not view.placements:
        return
    if not 0 <= task < len(view.placements):
        raise MessageMalformed(sender_name(sender), f"task {task}, the plan has {len(view.placements)}")
    placement = view.placements[task]
    if placement.incarnation == incarnation and placement.slot != sender:
        what = f"it speaks for task {task}.{view_name(incarnation)}, which runs in slot {placement.slot}"
        raise MessageMalformed(sender_name(sender), what)


def check_itself(sender: SlotId, named: SlotId) -> None:
    """Checks that a message names its sender as the slot that it is from.

    Raises: MessageMalformed, if it names another slot.
    """
    if named != sender:
        raise MessageMalformed(sender_name(sender), f"it speaks for slot {named}")


def fits(view: View, plan: Plan) -> bool:
    """Returns whether a view places each task of the plan, in the order of the plan."""
    return [placement.task for placement in view.placements] == list(plan.tasks)

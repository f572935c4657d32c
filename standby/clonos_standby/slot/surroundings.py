"""Objects that all threads of a slot process share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from clonos.core.model.ids import TaskId
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import Mirror
from clonos.core.slot.slot_events import Event
from clonos.io.process.fault_points import FaultPoints
from clonos.io.system.wall_clock import SlewedClock
from clonos.operators.job_image import JobImage
from clonos.operators.state.keyed_state import StateImage
from clonos_standby.inbox import Inbox


@dataclass(slots=True)
class SlotSurroundings:
    """The way to the slot's machine, the job, the clock, and the listener at fault points, if there is one.

    ``handle`` steps the machine; only the I/O thread may call it. ``image`` has the plan of the installed view. Only
    the I/O thread changes it, so work of another thread keeps the image with which it began.
    """

    handle: Callable[[Event], None]
    inbox: Inbox
    image: JobImage
    clock: SlewedClock
    faults: FaultPoints | None = None

    def adopt(self, plan: Plan) -> None:
        """Takes over the plan of a view with other widths."""
        self.image = replace(self.image, plan=plan)

    def new_mirror(self, _task: TaskId) -> Mirror:
        """Returns an empty image of the state of a task's chain."""
        return StateImage()

    def name_of(self, task: TaskId | None) -> str:
        """Returns the name of a task; "" for None, and for a number that the plan does not have."""
        plan = self.image.plan
        return plan.task_name(task) if task is not None and 0 <= task < len(plan.tasks) else ""

    def post(self, event: Event) -> None:
        """Queues an event for the machine. Any thread may call this."""
        self.inbox.put(self.handle, event)

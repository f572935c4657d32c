"""Objects that all threads of a slot process share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clonos.core.model.ids import TaskId
from clonos.core.ports.operator_chain import Mirror
from clonos.core.slot.slot_events import Event
from clonos.io.process.fault_points import FaultPoints
from clonos.io.system.wall_clock import SlewedClock
from clonos.operators.job_image import JobImage
from clonos_standby.inbox import Inbox


@dataclass(frozen=True, slots=True)
class SlotSurroundings:
    """The way to the slot's machine, the job, the clock, and the listener at fault points, if there is one.

    ``handle`` steps the machine; only the I/O thread may call it.
    """

    handle: Callable[[Event], None]
    inbox: Inbox
    image: JobImage
    clock: SlewedClock
    faults: FaultPoints | None = None

    def new_mirror(self, task: TaskId) -> Mirror:
        """Returns an empty image of the state of a task's chain."""
        return self.image.new_mirror(self.image.plan.vertex_of[task])

    def post(self, event: Event) -> None:
        """Queues an event for the machine. Any thread may call this."""
        self.inbox.put(self.handle, event)

"""Objects that all threads of a slot process share."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.core.slot.slot import Slot
from clonos.io.process.fault_points import FaultPoints
from clonos.io.system.wall_clock import SlewedClock
from clonos.operators.job_image import JobImage
from clonos_standby.inbox import Inbox


@dataclass(frozen=True, slots=True)
class SlotSurroundings:
    """Shared objects: the slot's machine and its inbox, the job, the clock, and the client of fault points, if they are
    armed."""

    slot: Slot
    inbox: Inbox
    image: JobImage
    clock: SlewedClock
    faults: FaultPoints | None = None

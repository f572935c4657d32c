"""What the threads of a slot's process have in common."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.core.slot.slot import Slot
from clonos.io.process.fault_points import FaultPoints
from clonos.io.system.wall_clock import SlewedClock
from clonos.operators.job_image import JobImage
from clonos_standby.inbox import Inbox


@dataclass(frozen=True, slots=True)
class SlotSurroundings:
    """The slot's machine and the way to it, the job, the clock, and who listens at fault points, if anybody does."""

    slot: Slot
    inbox: Inbox
    image: JobImage
    clock: SlewedClock
    faults: FaultPoints | None = None

"""Kills that come while the widths of a running job change: when, and which process.

Each is at a fault point, or once the status shows a phase. A kill at a fault point hits the process that has reached
it, or another one while that process stands there. Points of checkpoints are those of the cut, and of no other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from clonos.io.process.fault_points import FaultPoint
from clonos.status import RescalePhase


class Victim(StrEnum):
    """Process that is killed."""

    HERE = "the process at the point"
    SLOT = "another process of a task"
    DRIVER = "driver"
    BOTH = "driver and a process of a task"


@dataclass(frozen=True, slots=True)
class RescaleKill:
    """When a process is killed, and which. ``is_decided``: the metadata of the cut is in the store by then, so that
    nothing may give the change up."""

    when: RescalePhase | FaultPoint
    victim: Victim
    is_decided: bool = False

    @property
    def is_between_cut_and_view(self) -> bool:
        """Whether all tasks come to stand at the cut, or stand there."""
        return self.when in BETWEEN

    def __str__(self) -> str:
        where = f"at {self.when}" if isinstance(self.when, FaultPoint) else self.when
        return f"{self.victim}, {where}"


_OF_SNAPSHOTS: Final = (FaultPoint.SNAPSHOT_BEGUN, FaultPoint.SNAPSHOT_WRITTEN)
_OF_TASKS: Final = (FaultPoint.READ_AHEAD, FaultPoint.ALIGNED, *_OF_SNAPSHOTS)
_OF_CUT: Final = (FaultPoint.METADATA_BEGUN,)
_BEFORE_VIEW: Final = (
    *(FaultPoint.METADATA_WRITTEN, FaultPoint.COMMITTED, FaultPoint.DIVISION_BEGUN, FaultPoint.DIVIDED),
)
BETWEEN: Final = (FaultPoint.ALIGNED, *_OF_SNAPSHOTS, *_OF_CUT, *_BEFORE_VIEW)
"""Points that are reached at each checkpoint and at the cut, and report its number."""

AFTER_VIEW: Final = (
    *(FaultPoint.START, FaultPoint.LOG_END, FaultPoint.LIVE, FaultPoint.SINK_OPENED, FaultPoint.SINK_WRITTEN),
)

KILLS: Final = (
    *(
        RescaleKill(phase, victim)
        for phase in (RescalePhase.ORDERING, RescalePhase.WARMING, RescalePhase.CUTTING)
        for victim in (Victim.SLOT, Victim.DRIVER)
    ),
    *(RescaleKill(point, victim) for point in _OF_TASKS for victim in (Victim.HERE, Victim.SLOT, Victim.DRIVER)),
    *(RescaleKill(point, victim) for point in _OF_CUT for victim in (Victim.SLOT, Victim.DRIVER, Victim.BOTH)),
    *(
        RescaleKill(point, victim, True)
        for point in _BEFORE_VIEW
        for victim in (Victim.SLOT, Victim.DRIVER, Victim.BOTH)
    ),
    *(RescaleKill(RescalePhase.SWITCHING, victim, True) for victim in (Victim.SLOT, Victim.DRIVER)),
    *(RescaleKill(point, victim, True) for point in AFTER_VIEW for victim in (Victim.HERE, Victim.DRIVER, Victim.BOTH)),
)
"""Kills in turn. Those before the metadata of the cut may give the change up."""


def kills_of(first: int, count: int) -> list[RescaleKill]:
    """Returns the kills of changes, from number ``first`` on: every kind in each round, in another order each time."""
    found: list[RescaleKill] = []
    for place in range(first, first + count):
        turn, index = divmod(place, len(KILLS))
        found.append(Random(turn).sample(KILLS, len(KILLS))[index])
    return found

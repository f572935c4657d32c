"""Counters of rare situations: a swarm that never reaches one has proved less than it seems.

Each is a name in ``WorldOutcome.reached``. ``clonos chaos seeds`` prints how often each was reached; CI fails when one
was never reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.model.ids import CheckpointId, Incarnation, SlotId
from clonos.core.recovery.recovery_machine import Connecting, Recovering, Replaying, Stalled
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.slot import Slot
from clonos.core.wire.control_messages import Snapshotted, View

if TYPE_CHECKING:
    from clonos_chaos.swarm.world import World

RECOVERY_IN_RECOVERY = "recovery inside a recovery"  # a process dies whose task has not caught up yet
VIEW_WHILE_GATHERING = "view while a task gathers"  # holders that have not answered are asked again under the new view
SPILL_IN_REPLAY = "spill during a replay"
ROLLBACK = "rollback"
FENCED_AT_SINK = "fenced zombie at a sink"  # the external system refuses a sink whose successor has registered
LATE_DELTA = "late delta"  # carried by a message of a closed session or of a replaced sender
SUBSTITUTE = "checkpoint completed by a substitute"  # begun with an incarnation, completed with its successor

HOT_TAKEOVER = "hot standby took over"  # and went live
WITHDRAWN = "rows withdrawn from a table"
MOVED = "task moved"
MOVED_WITH_EFFECTS = "task with effects outside of the job moved"
MOVE_GIVEN_UP = "move given up"  # what the task had begun took too long

SITUATIONS = (
    RECOVERY_IN_RECOVERY,
    VIEW_WHILE_GATHERING,
    SPILL_IN_REPLAY,
    ROLLBACK,
    FENCED_AT_SINK,
    LATE_DELTA,
    SUBSTITUTE,
    HOT_TAKEOVER,
    WITHDRAWN,
    MOVED,
    MOVED_WITH_EFFECTS,
)

_NOT_CAUGHT_UP = (Recovering, Connecting, Replaying, Stalled)


class Situations:
    """Counters of the rare situations of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._incarnations: dict[CheckpointId, tuple[Incarnation, ...]] = {}  # when it was first acknowledged
        self._suspended: set[Incarnation] = set()  # by the last view
        self.moved: set[tuple[str, int]] = set()  # names of tasks, and incarnations that began with a planned move

    def reach(self, situation: str) -> None:
        """Counts one of ``SITUATIONS``."""
        reached = self._world.outcome.reached
        reached[situation] = reached.get(situation, 0) + 1

    def dying(self, slots: list[SlotId]) -> None:
        """Records that these processes are about to die."""
        for slot_id in slots:
            for hosted in self._world.slots[slot_id].slot.hosted.values():
                if _is_successor(hosted) and isinstance(hosted.state, _NOT_CAUGHT_UP):
                    self.reach(RECOVERY_IN_RECOVERY)

    def viewed(self, view: View, is_rollback: bool) -> None:
        """Records that the next view is being sent."""
        if is_rollback:
            self.reach(ROLLBACK)
        for slot in self._world.living():
            for hosted in slot.slot.hosted.values():
                is_in_it = view.placements[hosted.task].incarnation == hosted.incarnation
                if is_in_it and isinstance(hosted.state, Recovering) and not hosted.state.gathering.is_complete:
                    self.reach(VIEW_WHILE_GATHERING)
        self._note_moves()
        goes_on = {p.incarnation for p in view.placements if not p.is_suspended}
        for _ in self._suspended & goes_on:
            self.reach(MOVE_GIVEN_UP)
        self._suspended = {p.incarnation for p in view.placements if p.is_suspended}

    def _note_moves(self) -> None:
        plan = self._world.plan
        for recovery in self._world.coordinator.machine.recoveries:
            if not recovery.is_move or recovery.incarnation is None:
                continue
            if (life := (plan.task_name(recovery.task), int(recovery.incarnation))) not in self.moved:
                self.moved.add(life)
                self.reach(MOVED_WITH_EFFECTS if recovery.task in plan.with_keepers else MOVED)

    def spilled(self, slot: Slot) -> None:
        """Records that a segment of an in-flight log of this slot is on disk."""
        if any(isinstance(hosted.state, Replaying) for hosted in slot.hosted.values()):
            self.reach(SPILL_IN_REPLAY)

    def acknowledged(self, message: Snapshotted, view: View) -> None:
        """Records that a task reports its snapshot as durable."""
        if not message.final and message.checkpoint not in self._incarnations:
            self._incarnations[message.checkpoint] = tuple(p.incarnation for p in view.placements)

    def completed(self, metadata: CheckpointMetadata) -> None:
        """Records that a checkpoint is durable."""
        first = self._incarnations.get(metadata.checkpoint)
        if first is not None and any(entry.incarnation != first[entry.task] for entry in metadata.tasks):
            self.reach(SUBSTITUTE)


def _is_successor(hosted: HostedTask) -> bool:
    return not hosted.placement.is_fresh

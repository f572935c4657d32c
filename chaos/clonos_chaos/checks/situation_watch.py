"""Counters of the rare situations that a world reaches by itself; those of a single process count themselves."""

from __future__ import annotations

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.model.ids import CheckpointId, Incarnation, SlotId
from clonos.core.recovery.recovery_machine import Connecting, Recovering, Replaying, Stalled
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.control_messages import Snapshotted, View
from clonos_chaos.sim.rare_situations import (
    MOVE_GIVEN_UP,
    MOVED,
    MOVED_WITH_EFFECTS,
    RECOVERY_IN_RECOVERY,
    ROLLBACK,
    SUBSTITUTE,
    VIEW_WHILE_GATHERING,
)
from clonos_chaos.sim.sim_cluster import SimCluster

_NOT_CAUGHT_UP = (Recovering, Connecting, Replaying, Stalled)


class Situations:
    """Counters of the rare situations of one world."""

    def __init__(self, world: SimCluster) -> None:
        self._world = world
        self._incarnations: dict[CheckpointId, tuple[Incarnation, ...]] = {}  # when it was first acknowledged
        self._suspended: set[Incarnation] = set()  # by the last view
        self.moved: set[tuple[str, int]] = set()  # names of tasks, and incarnations that began with a planned move

    def dying(self, slots: list[SlotId]) -> None:
        """Records that these processes are about to die."""
        for slot_id in slots:
            for hosted in self._world.slots[slot_id].slot.hosted.values():
                if _is_successor(hosted) and isinstance(hosted.state, _NOT_CAUGHT_UP):
                    self._world.count(RECOVERY_IN_RECOVERY)

    def viewed(self, view: View, is_rollback: bool) -> None:
        """Records that the next view is being sent."""
        if is_rollback:
            self._world.count(ROLLBACK)
        for slot in self._world.living():
            for hosted in slot.slot.hosted.values() if slot.slot.view.generation == view.generation else ():
                is_in_it = view.placements[hosted.task].incarnation == hosted.incarnation
                if is_in_it and isinstance(hosted.state, Recovering) and not hosted.state.gathering.is_complete:
                    self._world.count(VIEW_WHILE_GATHERING)
        self._note_moves()
        goes_on = {p.incarnation for p in view.placements if not p.is_suspended}
        for _ in self._suspended & goes_on:
            self._world.count(MOVE_GIVEN_UP)
        self._suspended = {p.incarnation for p in view.placements if p.is_suspended}

    def _note_moves(self) -> None:
        plan = self._world.plan
        for recovery in self._world.coordinator.machine.recoveries:
            if not recovery.is_move or recovery.incarnation is None:
                continue
            if (life := (plan.task_name(recovery.task), int(recovery.incarnation))) not in self.moved:
                self.moved.add(life)
                self._world.count(MOVED_WITH_EFFECTS if recovery.task in plan.with_keepers else MOVED)

    def acknowledged(self, message: Snapshotted, view: View) -> None:
        """Records that a task reports its snapshot as durable."""
        if not message.final and message.checkpoint not in self._incarnations:
            self._incarnations[message.checkpoint] = tuple(p.incarnation for p in view.placements)

    def forget_plan(self) -> None:
        """Numbers mean other tasks: no checkpoint that has begun is completed."""
        self._incarnations.clear()

    def completed(self, metadata: CheckpointMetadata) -> None:
        """Records that a checkpoint is durable."""
        first = self._incarnations.get(metadata.checkpoint)
        if first is not None and any(entry.incarnation != first[entry.task] for entry in metadata.tasks):
            self._world.count(SUBSTITUTE)


def _is_successor(hosted: HostedTask) -> bool:
    return not hosted.placement.is_fresh

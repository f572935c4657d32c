"""Standbys: passive mirrors of a task's state, updated with snapshots of completed checkpoints (protocol 5 and 6.2)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from clonos.core.checkpoint.snapshot import RestoredState, pieces_of_payload, restore_from
from clonos.core.model.errors import EnvironmentFault, PeerError
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.ports.operator_chain import Mirror
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.replication_messages import StandbyUpdate


class Standby:
    """Mirror of one task. It holds the state of exactly ``applied``, and later changes beside it."""

    __slots__ = ("_new_mirror", "applied", "held", "incarnation", "mirror", "task")

    def __init__(self, task: TaskId, incarnation: Incarnation, new_mirror: Callable[[], Mirror]) -> None:
        self.task = task
        self.incarnation = incarnation
        self.applied: Snapshot | None = None
        self.mirror: Mirror | None = None
        #: Invariant: there is a mirror if and only if there is a snapshot
        self.held: list[tuple[StandbyUpdate, bytes]] = []
        self._new_mirror = new_mirror

    @property
    def checkpoint(self) -> CheckpointId:
        """Checkpoint that the standby could restore at once; 0 for none."""
        return self.applied.checkpoint if self.applied else CheckpointId(0)

    def apply_view(self, incarnation: Incarnation, restore: CheckpointId) -> None:
        """Takes over another incarnation that a view names: drops changes of the dead one after ``restore``."""
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self.held = [(update, data) for update, data in self.held if update.checkpoint <= restore]

    def hold(self, update: StandbyUpdate, data: bytes) -> None:
        """Takes in the next snapshot of the incarnation that the view names."""
        if update.incarnation == self.incarnation:
            self.held.append((update, data))

    def complete(self, checkpoint: CheckpointId) -> tuple[str, ...]:
        """Brings the mirror to ``checkpoint``; if changes are missing, returns the objects to fetch from the store
        instead."""
        # A write that failed and was tried again may be told after a later one.
        held = sorted(self.held, key=lambda item: item[0].checkpoint)
        ripe = [item for item in held if item[0].checkpoint <= checkpoint]
        if not ripe:
            return ()
        self.held = held[len(ripe) :]
        fulls = [i for i, (update, _) in enumerate(ripe) if update.previous is None]
        if fulls and (self.applied is None or ripe[fulls[-1]][0].checkpoint > self.checkpoint):
            ripe = ripe[fulls[-1] :]
            self.mirror = self._new_mirror()
            self.applied = None
        for update, data in ripe:
            if update.checkpoint <= self.checkpoint and self.applied is not None:
                continue
            if update.previous is not None and (self.applied is None or update.previous != self.checkpoint):
                self.mirror, self.applied = None, None
                return ripe[-1][0].objects
            if not data:  # it is too long to be sent
                self.mirror, self.applied = None, None
                return ripe[-1][0].objects
            if not self._apply(update, data):
                self.mirror, self.applied = None, None
                return ripe[-1][0].objects
        return ()

    def _apply(self, update: StandbyUpdate, data: bytes) -> bool:
        """Applies one snapshot; returns False where the payload is not what its message says: the mirror is spoilt."""
        name = update.objects[-1]
        mirror = self._new_mirror() if self.mirror is None else self.mirror
        try:
            snapshot, mirror = restore_from([(name, pieces_of_payload(data, name))], mirror)
        except (EnvironmentFault, PeerError):
            return False
        if (snapshot.task, snapshot.checkpoint) != (self.task, update.checkpoint):
            return False
        self.adopt(RestoredState(structs.replace(snapshot, chain_length=len(update.objects)), mirror))
        return True

    def adopt(self, restored: RestoredState) -> None:
        """Takes over the state after one more snapshot, or from a chain that was fetched from the store."""
        self.applied, self.mirror = restored

    def validate(self) -> None:
        """Asserts what holds between two events."""
        assert (self.applied is None) == (self.mirror is None), (self.task, self.applied)

    def is_at(self, restore: CheckpointId) -> bool:
        """Whether the mirror holds just what an incarnation that restores ``restore`` starts from."""
        applied = self.applied
        return applied is not None and (
            applied.checkpoint == restore or (applied.final and applied.checkpoint <= restore)
        )

"""Snapshots of one incarnation on their way to a completed checkpoint."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from msgspec import structs

from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.control_messages import Snapshotted
from clonos.core.wire.replication_messages import StandbyUpdate


class PendingSnapshot(NamedTuple):
    """A snapshot whose checkpoint is not over."""

    snapshot: Snapshot
    objects: tuple[str, ...]
    confirmed_seq: int  # the outside must have confirmed its output below before it counts

    @property
    def update(self) -> StandbyUpdate:
        """What standbys are told when it is durable."""
        taken = self.snapshot
        return StandbyUpdate(taken.task, taken.incarnation, taken.checkpoint, taken.previous, self.objects)


class PendingSnapshots:
    """Which snapshots are stored, acknowledged, and superseded."""

    __slots__ = ("_behind_whole", "_parts", "_whole", "objects", "unsettled", "unwritten")

    def __init__(self, objects: tuple[str, ...]) -> None:
        self.objects = objects  # the chain that the next snapshot builds on
        self.unsettled: list[PendingSnapshot] = []
        #: Invariant: their checkpoints ascend
        self.unwritten: dict[str, tuple[Snapshot, Pieces | None]] = {}
        self._whole = ""  # the object that a new chain is to begin with, once it is stored
        self._behind_whole: tuple[str, ...] = ()
        self._parts: list[tuple[CheckpointId, bytes]] = []

    def take(self, snapshot: Snapshot, parts: tuple[bytes, ...], confirmed_seq: int, more: Pieces | None = None) -> str:
        """A barrier's snapshot; the name of the object to write."""
        kind = "final" if snapshot.final else "full" if snapshot.previous is None else "delta"
        name = _name_of(snapshot, kind)
        self.objects = (name,) if snapshot.previous is None else (*self.objects, name)
        self._behind_whole = (*self._behind_whole, name)
        self.unwritten[name] = (snapshot, more)
        settled = structs.replace(snapshot, changes=b"", position=b"")  # only its positions are asked for
        self.unsettled.append(PendingSnapshot(settled, self.objects, confirmed_seq))
        self._parts += [(snapshot.checkpoint, part) for part in parts]
        return name

    def adopt_final(self, entry: PendingSnapshot) -> None:
        """Acknowledges again the final snapshot that this incarnation was restored from."""
        self.unsettled.append(entry)

    def begin_whole(self, snapshot: Snapshot) -> tuple[str, Snapshot]:
        """All of the state at the barrier of the snapshot that was taken last is to be stored too: under which name,
        and what stands in front of it."""
        self._whole, self._behind_whole = _name_of(snapshot, "full"), ()
        return self._whole, structs.replace(snapshot, previous=None, changes=b"", chain_length=1)

    def whole_written(self, name: str) -> None:
        """It is durable: what comes next builds on it. Earlier snapshots keep the chain that they were told with."""
        if name == self._whole:
            self.objects = (name, *self._behind_whole)

    def written(self, name: str) -> PendingSnapshot | None:
        """An object is durable."""
        self.unwritten.pop(name, None)
        return next((entry for entry in self.unsettled if entry.objects[-1] == name), None)

    def acknowledgements(self, task: TaskId, incarnation: Incarnation, confirmed_seq: int) -> list[Snapshotted]:
        """Every snapshot that counts by now; repeated until its checkpoint is over."""
        return [
            Snapshotted(
                task,
                incarnation,
                entry.snapshot.checkpoint,
                entry.objects,
                entry.snapshot.log_offset_bytes,
                tuple(part for part in self._parts if part[0] <= entry.snapshot.checkpoint),
                entry.snapshot.final,
            )
            for entry in self.unsettled
            if entry.confirmed_seq <= confirmed_seq and self.unwritten.keys().isdisjoint(entry.objects)
        ]

    def validate(self) -> None:
        """Asserts what holds between two events."""
        numbers = [entry.snapshot.checkpoint for entry in self.unsettled]
        assert all(earlier < later for earlier, later in pairwise(numbers)), numbers

    def complete(self, checkpoint: CheckpointId) -> Snapshot | None:
        """A checkpoint is complete: the snapshot that counted for it, if any; what lies before its positions may go."""
        over = [entry for entry in self.unsettled if entry.snapshot.checkpoint <= checkpoint]
        if not over:
            return None
        last = over[-1]
        self.unsettled = [
            entry
            for entry in self.unsettled
            if entry.snapshot.checkpoint > checkpoint or (entry is last and last.snapshot.final)
        ]
        self._parts = [part for part in self._parts if part[0] > checkpoint]
        return last.snapshot


def _name_of(snapshot: Snapshot, kind: str) -> str:
    return f"snapshots/{snapshot.task}/{snapshot.checkpoint:012d}-{snapshot.incarnation:x}-{kind}"

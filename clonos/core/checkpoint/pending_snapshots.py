"""Pending snapshots of one incarnation, from the barrier to the completed checkpoint: the task's side (protocol 5)."""

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
    """Snapshot of a checkpoint that has not completed yet."""

    snapshot: Snapshot
    objects: tuple[str, ...]
    confirmed_seq: int  # the external system must confirm all output below before the snapshot counts

    @property
    def update(self) -> StandbyUpdate:
        """Message to the standbys once the snapshot is durable."""
        taken = self.snapshot
        return StandbyUpdate(taken.task, taken.incarnation, taken.checkpoint, taken.previous, self.objects)


class PendingSnapshots:
    """Bookkeeping of an incarnation's snapshots: which are being written, durable, and superseded."""

    __slots__ = ("_parts", "_since_whole", "_whole", "objects", "entries", "unwritten")

    def __init__(self, objects: tuple[str, ...]) -> None:
        self.objects = objects  # chain that the next snapshot builds on
        self.entries: list[PendingSnapshot] = []
        #: Invariant: their checkpoints ascend
        self.unwritten: dict[str, tuple[Snapshot, Pieces | None]] = {}
        self._whole = ""  # full object with which a new chain begins once it is durable
        self._since_whole: tuple[str, ...] = ()
        self._parts: list[tuple[CheckpointId, bytes]] = []

    def take(
        self,
        snapshot: Snapshot,
        parts: tuple[bytes, ...],
        confirmed_seq: int,
        more: Pieces | None = None,
        keeps_position: bool = False,
    ) -> str:
        """Adds the snapshot of a barrier and returns the name of the object to write.

        ``keeps_position``: the position in the source is needed when the checkpoint completes.
        """
        kind = "final" if snapshot.final else "full" if snapshot.previous is None else "delta"
        name = name_of_snapshot(snapshot, kind)
        self.objects = (name,) if snapshot.previous is None else (*self.objects, name)
        self._since_whole = (*self._since_whole, name)
        self.unwritten[name] = (snapshot, more)
        position = snapshot.position if keeps_position else b""
        positions = structs.replace(snapshot, changes=b"", position=position)  # completion needs no state
        self.entries.append(PendingSnapshot(positions, self.objects, confirmed_seq))
        self._parts += [(snapshot.checkpoint, part) for part in parts]
        return name

    def adopt_final(self, entry: PendingSnapshot) -> None:
        """Acknowledges again the final snapshot that this incarnation was restored from."""
        self.entries.append(entry)

    def begin_whole(self, snapshot: Snapshot) -> tuple[str, Snapshot]:
        """Begins to store the whole state at the last snapshot's barrier. Returns the name and the head of its
        object.
        """
        self._whole, self._since_whole = name_of_snapshot(snapshot, "full"), ()
        return self._whole, structs.replace(snapshot, previous=None, changes=b"", chain_length=1)

    def whole_written(self, name: str, stored_as: str = "") -> None:
        """Notes that the whole state is durable, so that later snapshots build on it.

        Earlier ones keep the chain that they were reported with.
        """
        if name == self._whole:
            self.objects = (stored_as or name, *self._since_whole)

    def written(self, name: str, stored_as: str = "") -> PendingSnapshot | None:
        """Notes that an object is durable, and returns its pending snapshot. ``stored_as``: the name by which it is
        read, if that is another one."""
        self.unwritten.pop(name, None)
        stored_as = stored_as or name

        def renamed(objects: tuple[str, ...]) -> tuple[str, ...]:
            return tuple([stored_as if each == name else each for each in objects])

        self.objects, self._since_whole = renamed(self.objects), renamed(self._since_whole)
        self.entries = [entry._replace(objects=renamed(entry.objects)) for entry in self.entries]
        return next((entry for entry in self.entries if entry.objects[-1] == stored_as), None)

    def acknowledgements(self, task: TaskId, incarnation: Incarnation, confirmed_seq: int) -> list[Snapshotted]:
        """Returns the acknowledgements of all snapshots that count, to be repeated until their checkpoint completes."""
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
            for entry in self.entries
            if entry.confirmed_seq <= confirmed_seq and self.unwritten.keys().isdisjoint(entry.objects)
        ]

    def become_confirmed(self, before_seq: int, confirmed_seq: int) -> bool:
        """Returns whether a snapshot that waited for output from ``before_seq`` on waits for none any more."""
        return any(before_seq < entry.confirmed_seq <= confirmed_seq for entry in self.entries)

    def validate(self) -> None:
        """Asserts what holds between two events."""
        numbers = [entry.snapshot.checkpoint for entry in self.entries]
        assert all(earlier < later for earlier, later in pairwise(numbers)), numbers

    def complete(self, checkpoint: CheckpointId) -> Snapshot | None:
        """Removes the snapshots of a completed checkpoint and returns the snapshot that counted for it, if any.

        Logs before the positions of that snapshot may be truncated.
        """
        over = [entry for entry in self.entries if entry.snapshot.checkpoint <= checkpoint]
        if not over:
            return None
        last = over[-1]
        self.entries = [
            entry
            for entry in self.entries
            if entry.snapshot.checkpoint > checkpoint or (entry is last and last.snapshot.final)
        ]
        self._parts = [part for part in self._parts if part[0] > checkpoint]
        return last.snapshot


def name_of_snapshot(snapshot: Snapshot, kind: str) -> str:
    """Returns the name of the object of a snapshot. ``kind``: "final", "full", "delta" or ``snapshot.MOVED``."""
    return f"snapshots/{snapshot.task}/{snapshot.checkpoint:012d}-{snapshot.incarnation:x}-{kind}"


def task_of_object(name: str) -> TaskId:
    """Returns the task whose snapshot an object of the store is."""
    return TaskId(int(name.split("/")[1]))

"""Answers of the checkpoint store and of the local disk, as a slot handles them (protocol 4, 6)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from clonos.core.checkpoint.pending_snapshots import task_of_object
from clonos.core.checkpoint.snapshot import Snapshot
from clonos.core.model.ids import TaskId
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.slot_effects import ShadowRead, StandbyRead, TaskRead
from clonos.core.ports.slot_shell import SlotShell
from clonos.core.slot.backpressure import Pressure
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.slot_events import (
    SegmentLoaded,
    SegmentSpilled,
    SnapshotsRead,
    SnapshotWritten,
    WholeStateWritten,
)
from clonos.core.standby.shadow import Shadow
from clonos.core.standby.state_mirror import Standby


class StorageEvents(ABC):
    """The part of a ``Slot`` that reads and writes snapshots, and spills in-flight logs."""

    shell: SlotShell
    pressure: Pressure
    hosted: dict[TaskId, HostedTask]
    standbys: dict[TaskId, Standby]
    shadows: dict[TaskId, Shadow]
    failed_writes: dict[str, tuple[Snapshot, Pieces | None]]

    @abstractmethod
    def life(self, task: TaskId, incarnation: int) -> HostedTask | None:
        """Returns the hosted task of this incarnation, if it lives here."""

    @abstractmethod
    def send_status_if_due(self) -> None:
        """Sends a status at once if something has changed that others wait for."""

    def restore(self, hosted: HostedTask) -> None:
        """Brings the standby here to exactly the checkpoint that the view names, or fetches it from the store."""
        placement = hosted.placement
        standby = self.standbys.pop(hosted.task, None)
        if standby is not None:
            if not standby.is_at(placement.restore):
                standby.complete(placement.restore)
            if standby.is_at(placement.restore):
                hosted.restored(standby.applied, standby.mirror)
                return
        self.shell.read_objects(TaskRead(hosted.task, hosted.incarnation), placement.objects)

    def on_objects_read(self, event: SnapshotsRead) -> None:
        """Hands over what was read; what could not be read for a task is asked for again."""
        purpose, restored = event.purpose, event.restored
        match purpose:
            case ShadowRead(task, session):
                shadow = self.shadows.get(task)
                if shadow is not None:
                    shadow.on_objects_read(session, restored)
            case TaskRead(task, incarnation):
                hosted = self.life(task, incarnation)
                if hosted is None:
                    return
                if restored is None:
                    self.shell.read_objects(purpose, hosted.placement.objects)
                    return
                hosted.restored(*restored)
            case StandbyRead(task, incarnation):
                standby = self.standbys.get(task)
                if standby is None or standby.incarnation != incarnation or restored is None:
                    return  # read again when the next checkpoint completes
                if restored.snapshot.checkpoint > standby.checkpoint:
                    standby.adopt(restored)
        self.send_status_if_due()

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        """Acknowledges a durable snapshot; one that the store did not take is written again at the heartbeat."""
        hosted = self.hosted.get(task_of_object(event.name))
        if hosted is None or event.name not in hosted.pending.unwritten:
            return
        if event.error:
            self.failed_writes[event.name] = hosted.pending.unwritten[event.name]
        else:
            hosted.on_snapshot_written(event.name, event.payload)

    def on_whole_written(self, event: WholeStateWritten) -> None:
        """Lets the task's next snapshots build on its whole state, which is durable as one object."""
        hosted = self.hosted.get(task_of_object(event.name))
        if hosted is not None:
            hosted.pending.whole_written(event.name)

    def on_spilled(self, event: SegmentSpilled) -> None:
        """Takes note that a segment is on disk, or could not be written."""
        self.pressure.on_spilled(event.segment, event.stored_bytes, event.error)
        self.send_status_if_due()

    def on_segment_loaded(self, event: SegmentLoaded) -> None:
        """Sends on from a segment that was loaded; a task whose segment cannot be read fails."""
        self.pressure.on_segment_loaded(event.segment, event.payloads, event.error)

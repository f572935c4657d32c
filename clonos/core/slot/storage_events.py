"""Handling of what the checkpoint store and the local disk answer, and of the limits of memory (protocol 4, 5)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from clonos.core.channel.budgets import BudgetLevel, LimitExceeded, SegmentUnreadable
from clonos.core.channel.segment import SegmentPhase
from clonos.core.checkpoint.pending_snapshots import task_of_object
from clonos.core.model.ids import COORDINATOR, ChannelId, SlotId, TaskId
from clonos.core.model.plan import Plan
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.slot_effects import TaskRead
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.slot.backpressure import Pressure
from clonos.core.slot.backups import Backups
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.slot_events import (
    SegmentLoaded,
    SegmentSpilled,
    SnapshotsRead,
    SnapshotWritten,
    WarmedUp,
    WholeStateWritten,
)
from clonos.core.slot.source_drift import SourceDrift
from clonos.core.slot.warm_ups import WarmUps
from clonos.core.wire.control_messages import DriftLimit, Hold
from clonos.core.wire.recovery_messages import Recourse


class StorageEvents(ABC):
    """The part of a ``Slot`` that reads and writes snapshots, spills in-flight logs and watches the limits."""

    plan: Plan
    shell: EffectCollector
    pressure: Pressure
    drift: SourceDrift
    warm_ups: WarmUps
    backups: Backups
    hosted: dict[TaskId, HostedTask]
    failed_writes: dict[str, tuple[Snapshot, Pieces | None]]

    @abstractmethod
    def life(self, task: TaskId, incarnation: int) -> HostedTask | None:
        """Returns this incarnation, if it lives here."""

    @abstractmethod
    def answer_page(self, channel: ChannelId) -> None:
        """Sends a page that waited for a segment, which may have come."""

    @abstractmethod
    def mark_status(self) -> None:
        """Sends the status soon, because something has changed that others wait for."""

    @abstractmethod
    def send_status(self) -> None:
        """Reports what is installed here, so that the coordinator repeats only what is missing."""

    @abstractmethod
    def send_status_if_due(self) -> None:
        """Sends the status at once if something has changed that others wait for."""

    # ------------------------------------------------------------------ snapshots

    def restore(self, hosted: HostedTask) -> None:
        """Brings the standby here to exactly the checkpoint that the view names, or fetches it from the store."""
        standby = self.backups.restored(hosted.placement)
        if standby is not None:
            hosted.restored(standby.applied, standby.mirror)
        else:
            self.shell.read_objects(TaskRead(hosted.task, hosted.incarnation), hosted.placement.objects)

    def drop_shadow(self, successor: HostedTask) -> None:
        """Ends the shadow that an incarnation here would have continued from, and restores the state without it."""
        successor.drop_shadow()
        self.backups.drop_shadow(successor.task)
        self.restore(successor)

    def on_objects_read(self, event: SnapshotsRead) -> None:
        """Hands over what was read; what could not be read for a task is asked for again."""
        purpose, restored = event.purpose, event.restored
        if not isinstance(purpose, TaskRead):
            self.backups.on_objects_read(purpose, restored)
        elif (hosted := self.life(purpose.task, purpose.incarnation)) is not None:
            if restored is None:
                self.shell.read_objects(purpose, hosted.placement.objects)
                return
            hosted.restored(*restored)
        else:
            return
        self.send_status_if_due()

    def on_warmed_up(self, event: WarmedUp) -> None:
        """Reports that what the coordinator asked for is in memory."""
        if self.warm_ups.on_warmed_up(event.number):
            self.send_status()

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        """Acknowledges a durable snapshot; a failed write is repeated at the heartbeat."""
        hosted = self.hosted.get(task_of_object(event.name))
        if hosted is None or event.name not in hosted.pending.unwritten:
            return
        if event.error:
            self.failed_writes[event.name] = hosted.pending.unwritten[event.name]
        else:
            self.send_status()  # so that the counters are those of the checkpoint, also of the job's last one
            hosted.on_snapshot_written(event.name, event.payload, event.stored_as)

    def on_whole_written(self, event: WholeStateWritten) -> None:
        """Lets the task's next snapshots build on its whole state, which is durable as one object."""
        hosted = self.hosted.get(task_of_object(event.name))
        if hosted is not None:
            hosted.pending.whole_written(event.name, event.stored_as)

    # ------------------------------------------------------------------ local disk and limits

    def on_spilled(self, event: SegmentSpilled) -> None:
        """Takes note that a segment is on disk, or could not be written."""
        self.pressure.on_spilled(event.segment, event.stored_bytes, event.error)
        self.relieve_pressure()
        self.send_status_if_due()

    def on_segment_loaded(self, event: SegmentLoaded) -> None:
        """Sends on from a segment that was loaded.

        A segment that cannot be read ends its task's incarnation, whose successor makes the elements again.
        """
        segment = self.pressure.budget.loaded(event.segment, event.payloads)
        if segment is None:
            return
        channel = self.plan.channels[segment.channel]
        hosted = self.hosted[channel.sender]
        if segment.phase is not SegmentPhase.UNREADABLE:
            hosted.on_segment_loaded(channel.id)
            self.answer_page(channel.id)
        elif hosted.reports.failed is None:
            receiver = "its external system" if channel.receiver is None else self.plan.task_name(channel.receiver)
            name = f"{self.plan.task_name(channel.sender)} -> {receiver}"
            fault = SegmentUnreadable(name, event.error or "it holds other elements than were stored")
            hosted.reports.fail(
                failure_of(hosted.task, hosted.incarnation, fault, Recourse.RETRY, with_traceback=False)
            )

    def relieve_pressure(self) -> None:
        """Compares what is used with the limits: shadows give way first, then sources pause, at last a task fails."""
        use = self.pressure.use(self._log_bytes())
        if use is not None and self.backups.end_shadows():
            use = self.pressure.use(self._log_bytes())
        if use is not None and use.level is BudgetLevel.HARD:
            self._fail_for_all(self.pressure.limit_exceeded(use))
        if self.pressure.update(use):
            self.mark_status()
            self._pause_sources()

    def _log_bytes(self) -> int:
        log_bytes = self.backups.log_bytes
        for hosted in self.hosted.values():
            log_bytes += hosted.logs.size_bytes
        return log_bytes

    def on_hold(self, _sender: SlotId, _hold: Hold, _payload: object) -> None:
        """Pauses the sources here, because another slot is above a soft limit."""
        if self.pressure.hold():
            self._pause_sources()

    def on_drift_limit(self, _sender: SlotId, limit: DriftLimit, _payload: object) -> None:
        """Tells the sources here how far they may read."""
        self.drift.limit(limit, self.hosted.values())

    def tick_sources(self, now_ns: int) -> None:
        """Lets sources read on when the coordinator has not repeated that they should wait."""
        if self.pressure.tick(now_ns):
            self._pause_sources()
        self.drift.tick(now_ns, self.hosted.values())

    def _pause_sources(self) -> None:
        for hosted in self.hosted.values():
            hosted.pause_sources(self.pressure.pauses_sources)

    def _fail_for_all(self, fault: LimitExceeded) -> None:
        """Fails one of the tasks here for all; in a slot that only keeps logs, a task that it keeps them for."""
        if self.hosted:
            hosted = self.hosted[min(self.hosted)]
            if hosted.reports.is_retried:  # what is reported already is repeated at the heartbeat
                hosted.reports.fail(
                    failure_of(hosted.task, hosted.incarnation, fault, Recourse.NONE, with_traceback=False)
                )
        elif self.backups.keepers:
            keeper = self.backups.keepers[min(self.backups.keepers)]
            self.shell.send(
                COORDINATOR,
                failure_of(keeper.task, keeper.incarnation, fault, Recourse.NONE, with_traceback=False),
            )

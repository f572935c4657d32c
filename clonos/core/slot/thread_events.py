"""What the threads of a slot's own incarnations tell its machine: each for one life, dropped when that is over.

A thread has a number of its own, since one that has begun as a shadow's goes on as that of an incarnation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from clonos.core.channel.budgets import Level, LimitExceeded, SegmentUnreadable
from clonos.core.channel.segment import SegmentPhase
from clonos.core.model.ids import COORDINATOR, ChannelId, Incarnation, TaskId, ThreadId
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.slot_shell import SlotShell
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_port import Emission
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.recovery import recovery_machine
from clonos.core.slot.backpressure import Pressure
from clonos.core.slot.backups import Backups
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.standby.shadow import Shadow
from clonos.core.wire.recovery_messages import Recourse, TaskFailed


class LocalEvents(ABC):
    """The part of a ``Slot`` that task threads, outside threads and intakes call, all in the slot's own thread."""

    plan: Plan
    shell: SlotShell
    hosted: dict[TaskId, HostedTask]
    backups: Backups
    pressure: Pressure
    failed_writes: dict[str, tuple[Snapshot, Pieces | None]]

    @abstractmethod
    def life(self, task: TaskId, incarnation: int) -> HostedTask | None:
        """This incarnation, if it lives here."""

    @abstractmethod
    def thread(self, task: TaskId, number: ThreadId) -> HostedTask | Shadow | None:
        """Whose thread has this number."""

    @abstractmethod
    def mark_status(self) -> None:
        """Sends the status soon, because something has changed that others wait for."""

    @abstractmethod
    def send_status_if_due(self) -> None:
        """At once where something has changed that others wait for."""

    @abstractmethod
    def drop_shadow(self, successor: HostedTask) -> None:
        """Ends the shadow that an incarnation here would have gone on from, and restores the state without it."""

    def on_emission(self, task: TaskId, thread: ThreadId, emission: Emission) -> None:
        """A task has done a step."""
        life = self.thread(task, thread)
        if life is not None:
            life.on_emission(emission)

    def on_log_end(self, task: TaskId, thread: ThreadId, positions: dict[ChannelId, int]) -> None:
        """A task needs a determinant beyond its log."""
        hosted = self.thread(task, thread)
        if isinstance(hosted, HostedTask):
            hosted.end_log(positions)
            self.send_status_if_due()

    def on_needs(self, task: TaskId, thread: ThreadId, channel: ChannelId, next_seq: int) -> None:
        """A replaying task waits for elements."""
        life = self.thread(task, thread)
        if isinstance(life, HostedTask):
            life.inputs.on_needs(channel, next_seq)
        elif life is not None:
            life.on_needs(channel, next_seq)

    def on_await_replicated(self, task: TaskId, thread: ThreadId, end_bytes: int) -> None:
        """A call with an effect waits for the keepers."""
        hosted = self.thread(task, thread)
        if isinstance(hosted, HostedTask):
            hosted.effects.on_await_replicated(thread, end_bytes)

    def on_announce_step(self, task: TaskId, thread: ThreadId, channel: ChannelId | None, first_seq: int) -> None:
        """A cautious task is about to take an element."""
        hosted = self.thread(task, thread)
        if isinstance(hosted, HostedTask):
            hosted.reports.announce_step(channel, first_seq)

    def on_open_journal(self, task: TaskId, thread: ThreadId) -> None:
        """A source is live and takes in more."""
        hosted = self.thread(task, thread)
        if isinstance(hosted, HostedTask) and hosted.effects.journal is not None:
            hosted.effects.journal.want()

    def on_journal(self, task: TaskId, incarnation: Incarnation, data: bytes) -> None:
        """Whole records have come in for a source that cannot read them again."""
        hosted = self.life(task, incarnation)
        if hosted is not None and hosted.effects.journal is not None:
            hosted.effects.on_journal_data(data)

    def on_producer_failed(self, task: TaskId, incarnation: Incarnation, error: str) -> None:
        """The connection that they come from broke, or could not be made."""
        hosted = self.life(task, incarnation)
        if hosted is not None and hosted.effects.journal is not None:
            failed = hosted.effects.journal.on_failed(error)
            if failed is not None and hosted.reports.failed is None:
                hosted.reports.fail(failed)

    def on_journal_lost(self, task: TaskId, thread: ThreadId) -> None:
        """The log of a task reads what its journal does not have."""
        hosted = self.thread(task, thread)
        if isinstance(hosted, HostedTask):
            hosted.advance(recovery_machine.JournalMissing())
            self.send_status_if_due()

    def on_failed(self, failed: TaskFailed) -> None:
        """Something besides its own thread has failed that an incarnation needs: the coordinator decides."""
        hosted = self.life(failed.task, failed.incarnation)
        if hosted is not None:
            hosted.reports.fail(failed)

    def on_raised(self, thread: ThreadId, failed: TaskFailed) -> None:
        """A task's thread has raised: the coordinator decides. A shadow's: its standby goes on without."""
        life = self.thread(failed.task, thread)
        if isinstance(life, HostedTask):
            self.on_failed(msgspec.structs.replace(failed, incarnation=life.incarnation))
        elif life is not None:
            life.on_raised(failed)
            successor = self.life(failed.task, life.incarnation)
            if successor is not None:  # that would have gone on from it
                self.drop_shadow(successor)

    def on_outside_opened(
        self, task: TaskId, incarnation: Incarnation, next_number: int, superseded_next: int | None
    ) -> None:
        """An outside has registered a sink's incarnation."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.effects.on_opened(next_number, superseded_next, hosted.view.generation)
            hosted.stated()
            self.send_status_if_due()

    def on_outside_fenced(self, task: TaskId, incarnation: Incarnation, generation: int, by: Incarnation) -> None:
        """An outside refuses a sink's incarnation: it has registered another one, ``by``, of some generation."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.advance(recovery_machine.SinkFencedOff(generation, by))
            self.send_status_if_due()

    def on_outside_confirmed(self, task: TaskId, incarnation: Incarnation, next_number: int) -> None:
        """An outside has everything below ``next_number``."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.effects.on_confirmed(next_number)
            hosted.acknowledge_snapshots()

    def on_snapshot_written(self, name: str, payload: bytes, error: str) -> None:
        """An object is durable, or the store has given up for now: it is tried again at the heartbeat."""
        hosted = self.hosted.get(_task_of(name))
        if hosted is None or name not in hosted.pending.unwritten:
            return
        if error:
            self.failed_writes[name] = hosted.pending.unwritten[name]
        else:
            hosted.on_snapshot_written(name, payload)

    def on_whole_written(self, name: str) -> None:
        """All of a task's state is durable as one object: its next snapshots build on that."""
        hosted = self.hosted.get(_task_of(name))
        if hosted is not None:
            hosted.pending.whole_written(name)

    # ------------------------------------------------------------------ budgets, and what the disk answers

    def on_spilled(self, segment: int, stored_bytes: int, error: str) -> None:
        """Takes over that a segment of an in-flight log is on disk, or could not be written."""
        self.pressure.on_spilled(segment, stored_bytes, error)
        self.relieve_pressure()
        self.send_status_if_due()

    def on_segment_loaded(self, number: int, payloads: list[bytes] | None, error: str) -> None:
        """Goes on with the channel of a segment that has come from disk.

        A segment that cannot be read ends its task's incarnation, whose successor makes the elements again.
        """
        segment = self.pressure.budget.loaded(number, payloads)
        if segment is None:
            return
        channel = self.plan.channels[segment.channel]
        hosted = self.hosted[channel.sender]
        if segment.phase is not SegmentPhase.UNREADABLE:
            hosted.on_segment_loaded(channel.id)
        elif hosted.reports.failed is None:
            receiver = "outside" if channel.receiver is None else self.plan.task_name(channel.receiver)
            name = f"{self.plan.task_name(channel.sender)} -> {receiver}"
            fault = SegmentUnreadable(name, error or "it holds other elements than were stored")
            hosted.reports.fail(
                failure_of(hosted.task, hosted.incarnation, fault, Recourse.RETRY, with_traceback=False)
            )

    def relieve_pressure(self) -> None:
        """Compares what is used with the limits: shadows give way first, then sources pause, at last a task fails."""
        use = self.pressure.use(self._log_bytes())
        if use is not None and self.backups.end_shadows():
            use = self.pressure.use(self._log_bytes())
        if use is not None and use.level is Level.HARD:
            self._fail_for_all(self.pressure.limit_exceeded(use))
        if self.pressure.update(use):
            self.mark_status()
            self._pause_sources()

    def _log_bytes(self) -> int:
        log_bytes = self.backups.log_bytes
        for hosted in self.hosted.values():
            log_bytes += hosted.logs.size_bytes
        return log_bytes

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


def _task_of(name: str) -> TaskId:
    return TaskId(int(name.split("/")[1]))

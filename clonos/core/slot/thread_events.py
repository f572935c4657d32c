"""Reports of a slot's threads, as its machine handles them: tasks, sinks and producers (protocol 6, 7).

Reports of an incarnation that has ended are dropped.

A thread has its own number, because the thread of a shadow goes on as that of the next incarnation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from clonos.core.model.ids import TaskId, ThreadId
from clonos.core.model.plan import Plan
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.recovery import recovery_machine
from clonos.core.slot.backups import Backups
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.slot_events import (
    ElementsNeeded,
    JournalMissed,
    JournalWanted,
    LogEndReached,
    PartFailed,
    ProducerDataRead,
    ProducerFailed,
    ReplicationAwaited,
    SinkConfirmed,
    SinkOpened,
    SinkWriterFenced,
    StepAnnounced,
    StepEmitted,
    ThreadRaised,
)
from clonos.core.standby.shadow import Shadow
from clonos.core.wire.recovery_messages import TaskFailed


class LocalEvents(ABC):
    """The part of a ``Slot`` that handles what the threads of its process report."""

    plan: Plan
    shell: EffectCollector
    hosted: dict[TaskId, HostedTask]
    backups: Backups

    @abstractmethod
    def life(self, task: TaskId, incarnation: int) -> HostedTask | None:
        """Returns the hosted task of this incarnation, if it lives here."""

    @abstractmethod
    def thread(self, task: TaskId, number: ThreadId) -> HostedTask | Shadow | None:
        """Returns the hosted task, or the shadow, whose thread has this number."""

    @abstractmethod
    def mark_status(self) -> None:
        """Sends the status soon, because something has changed that others wait for."""

    @abstractmethod
    def send_status_if_due(self) -> None:
        """Sends a status at once if something has changed that others wait for."""

    @abstractmethod
    def drop_shadow(self, successor: HostedTask) -> None:
        """Ends the shadow that an incarnation here would have continued from, and restores the state without it."""

    def on_emission(self, event: StepEmitted) -> None:
        """Takes over what a task, or a shadow, has made."""
        life = self.thread(event.task, event.thread)
        if life is not None:
            life.on_emission(event.emission)
            if event.emission.suspension:  # otherwise the next status says so
                self.mark_status()
                self.send_status_if_due()

    def on_log_end(self, event: LogEndReached) -> None:
        """Lets a task go live, unless its log is shorter than what others have seen of it."""
        hosted = self.thread(event.task, event.thread)
        if isinstance(hosted, HostedTask):
            hosted.running.on_log_end()
            if event.accepted:
                hosted.warn_of_divergence(event.accepted)
            hosted.end_log(event.positions)
            self.send_status_if_due()

    def on_needs(self, event: ElementsNeeded) -> None:
        """Grants credit up to what a replaying task waits for."""
        life = self.thread(event.task, event.thread)
        if isinstance(life, HostedTask):
            life.inputs.on_needs(event.channel, event.next_seq)
        elif life is not None:
            life.on_needs(event.channel, event.next_seq)

    def on_await_replicated(self, event: ReplicationAwaited) -> None:
        """Releases a call with an effect when the keepers have its log."""
        hosted = self.thread(event.task, event.thread)
        if isinstance(hosted, HostedTask):
            hosted.output_gate.on_await_replicated(event.thread, event.end_bytes)

    def on_announce_step(self, event: StepAnnounced) -> None:
        """Tells the coordinator which element a task in single-step mode is about to take."""
        hosted = self.thread(event.task, event.thread)
        if isinstance(hosted, HostedTask):
            hosted.reports.announce_step(event.channel, event.first_seq)

    def on_open_journal(self, event: JournalWanted) -> None:
        """Connects a journalled source that is live."""
        hosted = self.thread(event.task, event.thread)
        if isinstance(hosted, HostedTask) and hosted.output_gate.journal is not None:
            hosted.output_gate.journal.want()

    def on_journal(self, event: ProducerDataRead) -> None:
        """Journals whole records, which the producer cannot send again."""
        hosted = self.life(event.task, event.incarnation)
        if hosted is not None and hosted.output_gate.journal is not None:
            hosted.output_gate.on_journal_data(event.data)

    def on_producer_failed(self, event: ProducerFailed) -> None:
        """Opens a producer's connection again at the heartbeat, or reports that it cannot be opened."""
        hosted = self.life(event.task, event.incarnation)
        if hosted is not None and hosted.output_gate.journal is not None:
            failed = hosted.output_gate.journal.on_failed(event.error)
            if failed is not None and hosted.reports.failed is None:
                hosted.reports.fail(failed)

    def on_journal_lost(self, event: JournalMissed) -> None:
        """Reports a journal that is shorter than the log that reads it."""
        hosted = self.thread(event.task, event.thread)
        if isinstance(hosted, HostedTask):
            hosted.advance(recovery_machine.JournalMissing())
            self.send_status_if_due()

    def on_failed(self, event: PartFailed) -> None:
        """Reports the failure of something that an incarnation needs; the coordinator decides."""
        self._report(event.failed)

    def _report(self, failed: TaskFailed) -> None:
        hosted = self.life(failed.task, failed.incarnation)
        if hosted is not None:
            hosted.reports.fail(failed)

    def on_raised(self, event: ThreadRaised) -> None:
        """Reports what a task's thread has raised; the coordinator decides. A standby continues without its shadow."""
        failed = event.failed
        life = self.thread(failed.task, event.thread)
        if isinstance(life, HostedTask):
            life.running.on_raised(event.unfinished)
            self._report(msgspec.structs.replace(failed, incarnation=life.incarnation))
        elif life is not None:
            life.on_raised(failed)
            successor = self.life(failed.task, life.incarnation)
            if successor is not None:  # that would have gone on from it
                self.drop_shadow(successor)

    def on_external_opened(self, event: SinkOpened) -> None:
        """Lets a sink's output leave from where its external system has it."""
        hosted = self.life(event.task, event.incarnation)
        if hosted is not None:
            hosted.output_gate.on_opened(event.next_number, event.superseded_next, event.knows_output)
            hosted.check_handshakes()
            self.send_status_if_due()

    def on_sink_fenced(self, event: SinkWriterFenced) -> None:
        """Reports that a sink is fenced by a later incarnation."""
        hosted = self.life(event.task, event.incarnation)
        if hosted is not None:
            hosted.advance(recovery_machine.IncarnationFenced(event.generation, event.by))
            self.send_status_if_due()

    def on_external_confirmed(self, event: SinkConfirmed) -> None:
        """Forgets output that the external system has."""
        hosted = self.life(event.task, event.incarnation)
        if hosted is not None:
            before_seq = hosted.output_gate.confirmed_seq
            hosted.output_gate.on_confirmed(event.next_number)
            has_more = hosted.pending.become_confirmed(before_seq, hosted.output_gate.confirmed_seq)
            if has_more or hosted.output_gate.may_hand_over:
                self.mark_status()  # so that the rows are counted before the acknowledgement, which may end the job
                self.send_status_if_due()
            hosted.acknowledge_snapshots()

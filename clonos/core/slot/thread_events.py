"""What the threads of a slot's own incarnations tell its machine: each for one life, dropped when that is over.

A thread has a number of its own, since one that has begun as a shadow's goes on as that of an incarnation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from clonos.core.external.source_journal import SourceJournal
from clonos.core.model.ids import ChannelId, Incarnation, TaskId, ThreadId
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.task_port import Emission
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.standby.shadow import Shadow
from clonos.core.standby.takeover import drop_shadow
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import AnnounceStep, TaskFailed


class LocalEvents(ABC):
    """The part of a ``Slot`` that task threads, outside threads and intakes call, all in the slot's own thread."""

    hosted: dict[TaskId, HostedTask]
    failed_writes: dict[str, tuple[Snapshot, Pieces | None]]

    @abstractmethod
    def life(self, task: TaskId, incarnation: int) -> HostedTask | None:
        """This incarnation, if it lives here."""

    @abstractmethod
    def thread(self, task: TaskId, number: ThreadId) -> HostedTask | Shadow | None:
        """Whose thread has this number."""

    @abstractmethod
    def send_status_if_due(self) -> None:
        """At once where something has changed that others wait for."""

    @abstractmethod
    def send_to_coordinator(self, message: Message) -> None:
        """Sends to the coordinator."""

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
            hosted.effects.on_await_replicated(end_bytes)

    def on_announce_step(self, task: TaskId, thread: ThreadId, channel: ChannelId | None, first_seq: int) -> None:
        """A cautious task is about to take an element."""
        hosted = self.thread(task, thread)
        if isinstance(hosted, HostedTask):
            hosted.announced_step = AnnounceStep(task, hosted.incarnation, channel, first_seq)
            self.send_to_coordinator(hosted.announced_step)

    def on_open_journal(self, task: TaskId, thread: ThreadId) -> None:
        """A source is live and takes in more."""
        hosted = self.thread(task, thread)
        if isinstance(hosted, HostedTask) and hosted.effects.journal is not None:
            hosted.effects.journal.want()

    def on_journal(self, task: TaskId, incarnation: Incarnation, data: bytes) -> None:
        """Whole records have come in for a source that cannot read them again."""
        journal = self._journal(task, incarnation)
        if journal is not None:
            journal.on_data(data)

    def on_producer_failed(self, task: TaskId, incarnation: Incarnation, error: str) -> None:
        """The connection that they come from broke, or could not be made."""
        journal = self._journal(task, incarnation)
        if journal is not None:
            journal.on_failed(error)

    def on_journal_lost(self, task: TaskId, thread: ThreadId) -> None:
        """The log of a task reads what its journal does not have."""
        hosted = self.thread(task, thread)
        if isinstance(hosted, HostedTask):
            hosted.lose_journal()
            self.send_status_if_due()

    def _journal(self, task: TaskId, incarnation: Incarnation) -> SourceJournal | None:
        hosted = self.life(task, incarnation)
        return hosted.effects.journal if hosted is not None else None

    def on_failed(self, failed: TaskFailed) -> None:
        """Something besides its own thread has failed that an incarnation needs: the coordinator decides."""
        hosted = self.life(failed.task, failed.incarnation)
        if hosted is not None:
            hosted.failed = failed
            self.send_to_coordinator(failed)

    def on_raised(self, thread: ThreadId, failed: TaskFailed) -> None:
        """A task's thread has raised: the coordinator decides. A shadow's: its standby goes on without."""
        life = self.thread(failed.task, thread)
        if isinstance(life, HostedTask):
            self.on_failed(msgspec.structs.replace(failed, incarnation=life.incarnation))
        elif life is not None:
            life.on_raised(failed)
            successor = self.life(failed.task, life.incarnation)
            if successor is not None:  # that would have gone on from it
                drop_shadow(successor)

    def on_outside_opened(
        self, task: TaskId, incarnation: Incarnation, next_number: int, superseded_next: int | None
    ) -> None:
        """An outside has registered a sink's incarnation."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.effects.on_opened(next_number, superseded_next)
            self.send_status_if_due()

    def on_outside_fenced(self, task: TaskId, incarnation: Incarnation, generation: int, by: Incarnation) -> None:
        """An outside refuses a sink's incarnation: it has registered another one, ``by``, of some generation."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.effects.on_fenced(generation, by)
            self.send_status_if_due()

    def on_outside_confirmed(self, task: TaskId, incarnation: Incarnation, next_number: int) -> None:
        """An outside has everything below ``next_number``."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.effects.on_confirmed(next_number)

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


def _task_of(name: str) -> TaskId:
    return TaskId(int(name.split("/")[1]))

"""What the threads of a slot's own incarnations tell its machine: each for one life, dropped when that is over."""

from __future__ import annotations

from abc import ABC, abstractmethod

from clonos.core import messages as m
from clonos.core.hosted import Hosted
from clonos.core.ids import ChannelId, Incarnation, TaskId
from clonos.core.journal import Journal
from clonos.core.ports import Emission


class LocalEvents(ABC):
    """The part of a ``Slot`` that task threads, outside threads and intakes call, all in the slot's own thread."""

    @abstractmethod
    def life(self, task: TaskId, incarnation: int) -> Hosted | None:
        """This incarnation, if it lives here."""

    @abstractmethod
    def tell_status_if_due(self) -> None:
        """At once where something has changed that others wait for."""

    @abstractmethod
    def tell_coordinator(self, message: m.Message) -> None:
        """Sends to the coordinator."""

    def on_emission(self, task: TaskId, incarnation: Incarnation, emission: Emission) -> None:
        """A task has done a step."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.on_emission(emission)

    def on_log_end(self, task: TaskId, incarnation: Incarnation, positions: dict[ChannelId, int]) -> None:
        """A task needs a determinant beyond its log."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.end_log(positions)
            self.tell_status_if_due()

    def on_needs(self, task: TaskId, incarnation: Incarnation, channel: ChannelId, next_seq: int) -> None:
        """A replaying task waits for elements."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.inlets.on_needs(channel, next_seq)

    def on_await_kept(self, task: TaskId, incarnation: Incarnation, end_bytes: int) -> None:
        """A call with an effect waits for the keepers."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.effects.on_await_kept(end_bytes)

    def on_approach(self, task: TaskId, incarnation: Incarnation, channel: ChannelId, first_seq: int) -> None:
        """A cautious task is about to take an element."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.approaching = m.Approaching(task, incarnation, channel, first_seq)
            self.tell_coordinator(hosted.approaching)

    def on_open_journal(self, task: TaskId, incarnation: Incarnation) -> None:
        """A source is live and takes in more."""
        journal = self._journal(task, incarnation)
        if journal is not None:
            journal.want()

    def on_journal(self, task: TaskId, incarnation: Incarnation, data: bytes) -> None:
        """Whole records have come in for a source that cannot read them again."""
        journal = self._journal(task, incarnation)
        if journal is not None:
            journal.on_data(data)

    def on_intake_failed(self, task: TaskId, incarnation: Incarnation, error: str) -> None:
        """The connection that they come from broke, or could not be made."""
        journal = self._journal(task, incarnation)
        if journal is not None:
            journal.on_failed(error)

    def on_journal_lost(self, task: TaskId, incarnation: Incarnation) -> None:
        """The log of a task reads what its journal does not have."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.lose_journal()
            self.tell_status_if_due()

    def _journal(self, task: TaskId, incarnation: Incarnation) -> Journal | None:
        hosted = self.life(task, incarnation)
        return hosted.effects.journal if hosted is not None else None

    def on_raised(self, failed: m.TaskFailed) -> None:
        """A task's thread has raised: the coordinator decides."""
        hosted = self.life(failed.task, failed.incarnation)
        if hosted is not None:
            hosted.failed = failed
            self.tell_coordinator(failed)

    def on_outside_opened(
        self, task: TaskId, incarnation: Incarnation, next_number: int, superseded_next: int | None
    ) -> None:
        """An outside has registered a sink's incarnation."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.effects.on_opened(next_number, superseded_next)
            self.tell_status_if_due()

    def on_outside_confirmed(self, task: TaskId, incarnation: Incarnation, next_number: int) -> None:
        """An outside has everything below ``next_number``."""
        hosted = self.life(task, incarnation)
        if hosted is not None:
            hosted.effects.on_confirmed(next_number)

"""What leaves the job from one incarnation: output and calls with an effect, held until their causes are kept.

The outside is a receiver too: nothing goes out before every keeper that the view names has acknowledged, for each log,
the length it had when the effect was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from clonos.core.channel.inflight_log import InflightLog
from clonos.core.external.external_output import ExternalOutput, KeeperLink, Requirement, held_by
from clonos.core.external.source_journal import SourceJournal
from clonos.core.model.ids import Incarnation, LogId, SlotId, journal_of, view_name
from clonos.core.ports.task_port import Output
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.recovery import recovery_machine
from clonos.core.wire.replication_messages import AppendAck

if TYPE_CHECKING:
    from clonos.core.slot.hosted_task import HostedTask


class OutputGate:
    """The outside's end, the links to the keepers, and the calls that wait for them."""

    def __init__(self, hosted: HostedTask) -> None:
        self.hosted = hosted
        self.outside: ExternalOutput | None = None
        self.completed_seq = 0  # output that the last completed checkpoint holds, as far as is known here
        self.keepers: dict[SlotId, KeeperLink] = {}
        self.calls: list[tuple[int, Requirement]] = []  # (log end, requirement) of calls with an effect that wait
        self.journal = SourceJournal(hosted) if hosted.plan.is_journalled(hosted.task) else None

    # ------------------------------------------------------------------ the outside

    def open(self, log: InflightLog) -> None:
        """The task has a channel to the outside: registers."""
        hosted, view = self.hosted, self.hosted.slot.view
        self.outside = ExternalOutput(log)
        self.completed_seq = log.next_seq
        hosted.shell.open_outside(hosted.task, hosted.incarnation, view.generation, view.job_id, log.next_seq)

    @property
    def is_unregistered(self) -> bool:
        """The outside has not stated what it has."""
        return self.outside is not None and self.outside.claim is None

    @property
    def claim(self) -> int | None:
        """What the outside has taken in."""
        return self.outside.claim if self.outside is not None else 0

    @property
    def confirmed_seq(self) -> int:
        """Output below has been confirmed."""
        return self.outside.confirmed_seq if self.outside is not None else 0

    @property
    def logs(self) -> list[InflightLog]:
        """In-flight logs: of the channel to the outside, if there is one."""
        return [self.outside.log] if self.outside is not None else []

    def position_in(self, snapshot: Snapshot) -> int:
        """Output that the outside must have confirmed before the snapshot counts."""
        return dict(snapshot.outputs)[self.outside.log.channel] if self.outside is not None else 0

    def append(self, output: Output) -> None:
        """The task has produced output for the outside."""
        assert self.outside is not None, output.channel
        is_known = self.outside.log.next_seq + output.count <= self.outside.confirmed_seq
        self.outside.append(output.kind, output.count, output.payload, {} if is_known else self.requirement())

    def on_opened(self, next_number: int, superseded_next: int | None) -> None:
        """The outside has registered this incarnation and says what it has.

        After a rollback what an earlier generation let out behind the restored checkpoint may leave again: an alarm.
        """
        assert self.outside is not None
        hosted = self.hosted
        if superseded_next is not None and superseded_next > next_number:
            hosted.shell.warn(
                f"output {next_number} to {superseded_next - 1} of {hosted.plan.task_name(hosted.task)} had left before"
                " the rollback and may leave again, with other content",
                task=hosted.task,
                first=next_number,
                next=superseded_next,
                generation=view_name(hosted.slot.view.generation),
            )
        self.outside.open(next_number)
        self.pump()
        hosted.stated()

    def on_fenced(self, generation: int, by: Incarnation) -> None:
        """The outside has registered a later life: this one lets nothing out any more."""
        self.hosted.advance(recovery_machine.SinkFencedOff(generation, by))

    def on_confirmed(self, next_number: int) -> None:
        """The outside has taken output in."""
        assert self.outside is not None
        self.outside.confirm(next_number)
        self.hosted.acknowledge_snapshots()

    def on_completed(self, snapshot: Snapshot) -> None:
        """Another checkpoint is complete. It and the one before are kept: no restart goes back behind that one."""
        if self.outside is not None:
            hosted, oldest_seq = self.hosted, self.completed_seq
            self.completed_seq = self.position_in(snapshot)
            hosted.shell.forget_outside(hosted.task, hosted.incarnation, oldest_seq)

    # ------------------------------------------------------------------ the keepers

    def apply_view(self, slots: tuple[SlotId, ...]) -> None:
        """A view names the keepers: a new one beside the old gets all since the last checkpoint."""
        self.keepers = {slot: self.keepers.get(slot) or KeeperLink(slot, self.hosted.coverage) for slot in slots}
        if self.journal is not None:
            self.journal.met = self.hosted.slot.view.number
        for link in self.keepers.values():
            if not link.is_ready:
                self._keep_all(link)
        self.pump()

    def grown(self, log: LogId) -> None:
        """A log that the task holds has grown."""
        for link in self.keepers.values():
            link.dirty[log] = None

    def _kept_logs(self) -> Iterable[LogId]:
        """What keepers shall hold: all logs, or where sharing stops those that are not covered and the own one."""
        hosted = self.hosted
        if hosted.coverage is None:
            return hosted.logs.replicas
        own = (hosted.own_log, journal_of(hosted.task))
        found = dict.fromkeys(log for log in own if log in hosted.logs.replicas)
        return {**found, **hosted.coverage.uncovered}

    def requirement(self) -> Requirement:
        """For each log the length it has now, as far as some keeper has not acknowledged it."""
        lengths = {log: self.hosted.logs.end_bytes(log) for log in self._kept_logs()}
        if not self.keepers:
            return lengths
        required: Requirement = {}
        for link in self.keepers.values():
            acknowledged = link.acknowledged
            for log, end_bytes in lengths.items():
                if acknowledged.get(log, -1) < end_bytes:
                    required[log] = end_bytes
        return required

    def pump(self) -> None:
        """Replicates to the keepers, then releases what they have acknowledged."""
        is_waiting = bool(self.outside is not None or self.calls or (self.journal and self.journal.is_waiting))
        if not is_waiting and self.hosted.coverage is None:
            return
        for link in self.keepers.values():
            # What nothing waits for goes one message after the other.
            if link.dirty and link.is_ready and (is_waiting or not link.is_awaited):
                self._keep(link, is_whole=False)
        self._release_output()
        self._release_calls()
        if self.journal is not None:
            self.journal.release(self.keepers.values())

    def _keep(self, link: KeeperLink, is_whole: bool) -> None:
        hosted, journal = self.hosted, self.journal
        start_bytes = journal.start_bytes if journal is not None else 0
        message = link.message(hosted.task, hosted.incarnation, is_whole, hosted.logs, start_bytes)
        link.is_awaited = True
        hosted.shell.send(link.slot, message)

    def _keep_all(self, link: KeeperLink) -> None:
        # One that is new gets all: it may be covered by a keeper that is gone, or goes when this one is ready.
        link.rewind(self.hosted.logs, self._kept_logs() if link.is_ready else None)
        if link.dirty or not link.is_ready or self.journal is not None:
            self._keep(link, is_whole=True)

    def send_to_keepers(self) -> None:
        """Where the journal begins now."""
        for link in self.keepers.values():
            if link.is_ready:
                self._keep(link, is_whole=False)

    def on_kept(self, kept: AppendAck) -> None:
        """A keeper has acknowledged."""
        link = self.keepers.get(kept.slot)
        if link is not None and kept.incarnation == self.hosted.incarnation:
            link.acknowledge(kept)
            link.is_awaited = False
            if self.hosted.coverage is not None:
                self.hosted.coverage.acknowledged(held_by(self.keepers.values()), self.hosted.logs)
            self.pump()

    def _release_output(self) -> None:
        if self.outside is None:
            return
        hosted = self.hosted
        has_keepers = bool(hosted.slot.options.keepers)
        for chunk in self.outside.release(list(self.keepers.values()), has_keepers):
            hosted.shell.write_outside(
                hosted.task, hosted.incarnation, chunk.first_seq, chunk.count, chunk.kind, chunk.payload
            )

    def on_await_replicated(self, end_bytes: int) -> None:
        """A call with an effect waits until the keepers hold its causes."""
        self.calls.append((end_bytes, self.requirement()))
        self.pump()

    def _release_calls(self) -> None:
        links = list(self.keepers.values())
        if not links and self.hosted.slot.options.keepers:
            return
        while self.calls and all(link.satisfies(self.calls[0][1]) for link in links):
            self.hosted.shell.replicated_to(self.hosted.task, self.hosted.thread, self.calls.pop(0)[0])

    # ------------------------------------------------------------------ heartbeat and end

    def tick(self) -> None:
        """What a keeper has not acknowledged is sent again."""
        for link in self.keepers.values():
            link.is_awaited = False
            self._keep_all(link)
        if self.journal is not None:
            self.journal.open_if_due()

    def close(self) -> None:
        """The incarnation is over."""
        if self.outside is not None:
            self.outside.log.close()
            self.hosted.shell.close_outside(self.hosted.task, self.hosted.incarnation)
        if self.journal is not None:
            self.journal.close()

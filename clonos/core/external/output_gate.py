"""Output gate: output and calls with an effect leave one incarnation when keepers hold their causes (protocol 3 and 7).

An external system is a receiver too: nothing leaves before every keeper that the view names has acknowledged, for each
log, the length that the log had when the effect was made.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.core.channel.command_queue import CommandQueue
from clonos.core.channel.inflight_log import InflightLog
from clonos.core.external.external_output import ExternalOutput, KeeperLink, Requirement, held_by
from clonos.core.external.repeated_output import repeated_output
from clonos.core.external.source_journal import SourceJournal
from clonos.core.log.causal_log import CausalLogs
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.ids import Incarnation, LogId, SlotId, TaskId, ThreadId, journal_of, log_of
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.task_port import Output
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import RECEIVED_UNKNOWN
from clonos.core.wire.replication_messages import AppendAck


class OutputGate:
    """Channel to the external system, links to the keepers, and the calls that wait for them."""

    def __init__(
        self,
        task: TaskId,
        incarnation: Incarnation,
        plan: Plan,
        options: Options,
        logs: CausalLogs,
        coverage: Coverage | None,
        shell: EffectCollector,
        commands: CommandQueue,
    ) -> None:
        self.task, self.incarnation, self.name = task, incarnation, plan.task_name(task)
        self.own_log = log_of(task)
        self.logs, self.coverage, self.shell = logs, coverage, shell
        self.needs_keepers = bool(options.keepers) and task in plan.with_keepers
        self.sends_outcomes = task in plan.sends_outcomes
        self.external: ExternalOutput | None = None
        self.generation = 0  # under which it registers
        self.may_come_again = False  # output of an earlier generation, from where this one was restored
        self.lacks_log = False  # output of this generation may have left that no copy of its log shows
        self.completed_seq = 0  # output that the last completed checkpoint holds, as far as is known here
        self.is_acknowledged = plan.vertices[plan.vertex_of[task]].is_acknowledged
        self.completed_position = b""  # of the source at the last completed checkpoint, as far as is known here
        self.keepers: dict[SlotId, KeeperLink] = {}
        self.calls: list[tuple[ThreadId, int, Requirement]] = []  # (thread, log end) of calls with an effect that wait
        self.handover: Requirement | None = None  # what keepers must hold before a suspended task moves
        self.journal: SourceJournal | None = None
        if plan.is_journalled(task):
            self.journal = SourceJournal(
                task, incarnation, self.name, logs, shell, commands, options.credit_window_bytes
            )

    # ------------------------------------------------------------------ the external system

    def open(self, log: InflightLog, view: View, confirmed_seq: int, *, may_come_again: bool, lacks_log: bool) -> None:
        """Registers with the external system that the task has a channel to.

        ``confirmed_seq``: below it the system has confirmed all output, if the task moved to this slot. A system that
        does not know what it has gets no such output again. ``may_come_again``: an earlier generation may have written
        output after the restored one. ``lacks_log``: an earlier incarnation of this generation may have written output
        that the log does not show. Until the system says that it knows what it has, keepers get no log then: a later
        successor would take their copy for that of all output.
        """
        self.external = ExternalOutput(log)
        self.generation, self.may_come_again, self.lacks_log = view.generation, may_come_again, lacks_log
        self.completed_seq = log.next_seq
        next_seq = max(log.next_seq, confirmed_seq)
        self.shell.open_external(self.task, self.incarnation, view.generation, view.job_id, next_seq)

    @property
    def is_unregistered(self) -> bool:
        """Whether the external system has not answered the registration."""
        return self.external is not None and self.external.received_up_to is None

    @property
    def received_up_to(self) -> int | None:
        """Number of the next element that the external system lacks, as of the registration; None before it."""
        return self.external.received_up_to if self.external is not None else 0

    @property
    def high_water_mark(self) -> int | None:
        """Number below which the log must show all output before the task goes live; None before the registration."""
        return RECEIVED_UNKNOWN if self.lacks_log and not self.is_unregistered else self.received_up_to

    @property
    def confirmed_seq(self) -> int:
        """Number below which the external system has confirmed all output."""
        return self.external.confirmed_seq if self.external is not None else 0

    @property
    def inflight_logs(self) -> list[InflightLog]:
        """In-flight log of the channel to the external system, if there is one."""
        return [self.external.log] if self.external is not None else []

    def position_in(self, snapshot: Snapshot) -> int:
        """Number below which the external system must have confirmed all output before the snapshot counts."""
        return dict(snapshot.outputs)[self.external.log.channel] if self.external is not None else 0

    def hold_after(self, snapshot: Snapshot) -> None:
        """Holds output after the barrier at which the job stops, until a later barrier comes."""
        if self.external is not None:
            self.external.hold_from(self.position_in(snapshot) if snapshot.is_at_stop else None)

    def append(self, output: Output) -> None:
        """Takes output of the task for the external system."""
        assert self.external is not None, output.channel
        is_known = self.external.log.next_seq + output.count <= self.external.confirmed_seq
        self.external.append(output.kind, output.count, output.payload, {} if is_known else self.requirement())

    def on_opened(self, next_number: int, superseded_next: int | None, knows_output: bool) -> None:
        """Takes over what the external system has, which has registered this incarnation.

        Warns if more output of an earlier generation has left than that: it may leave again, with other content. A
        system that does not know what it has gives only the first number.
        """
        assert self.external is not None
        alarm = repeated_output(self.name, self.generation, next_number, superseded_next, knows_output)
        if alarm is not None and (knows_output or self.may_come_again):
            text, fields = alarm
            self.shell.warn(text, task=self.task, **fields)
        if knows_output and self.lacks_log:
            self.lacks_log = False
            for link in self.keepers.values():
                self._keep_all(link)
        self.external.open(next_number)
        self.pump()

    def on_confirmed(self, next_number: int) -> None:
        """Takes over that the external system has all output below ``next_number``."""
        assert self.external is not None
        self.external.confirm(next_number)

    def on_completed(self, snapshot: Snapshot) -> None:
        """Forgets output and input before the checkpoint before this one: no restart goes back before that."""
        if self.external is not None:
            oldest_seq, self.completed_seq = self.completed_seq, self.position_in(snapshot)
            self.shell.forget_external(self.task, self.incarnation, oldest_seq)
        if self.is_acknowledged:
            oldest, self.completed_position = self.completed_position, snapshot.position
            if oldest:
                self.shell.acknowledge_source(self.task, oldest)
        if self.journal is not None:
            self.truncate_journal(snapshot.journal_offset_bytes)

    # ------------------------------------------------------------------ the keepers

    def apply_view(self, view: View) -> None:
        """Takes over which keepers the view names: a new one gets all since the last checkpoint."""
        slots = view.placements[self.task].keepers
        self.keepers = {slot: self.keepers.get(slot) or KeeperLink(slot, self.coverage) for slot in slots}
        if self.journal is not None:
            self.journal.apply_view(view.number)
        for link in self.keepers.values():
            if not link.is_ready:
                self._keep_all(link)
        self.pump()

    def grown(self, log: LogId) -> None:
        """Marks a log that has grown: keepers get it."""
        for link in self.keepers.values():
            link.mark(log)

    def _held_logs(self) -> Iterable[LogId]:
        """Returns the logs that keepers have to hold: all, or with ``replicas=f`` the own ones and the uncovered."""
        if self.coverage is None:
            return self.logs.replicas
        own = (self.own_log, journal_of(self.task))
        found = dict.fromkeys(log for log in own if log in self.logs.replicas)
        return {**found, **self.coverage.uncovered}

    def requirement(self) -> Requirement:
        """Returns for each log the length it has now, where some keeper has not acknowledged it."""
        lengths = {log: self.logs.end_bytes(log) for log in self._held_logs()}
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
        has_effects = self.external is not None or bool(self.calls) or self.handover is not None
        is_waiting = has_effects or (self.journal is not None and self.journal.is_waiting)
        if not is_waiting and self.coverage is None and not self.sends_outcomes:
            return
        for link in self.keepers.values():
            # What nothing waits for is sent one message after the other.
            if link.dirty and link.is_ready and (is_waiting or not link.is_awaited):
                self._keep(link, is_whole=False)
        self._release_output()
        self._release_calls()
        if self.journal is not None:
            self.journal.release(self.keepers.values())

    def _keep(self, link: KeeperLink, is_whole: bool) -> None:
        start_bytes = self.journal.start_bytes if self.journal is not None else 0
        message = link.message(self.task, self.incarnation, is_whole, self.logs, start_bytes)
        self.shell.send(link.slot, message)

    def _keep_all(self, link: KeeperLink) -> None:
        if self.lacks_log:
            return
        # A new keeper gets all: a log may be covered by a keeper that is gone, or goes when this one is ready.
        link.rewind(self.logs, self._held_logs() if link.is_ready else None)
        if link.dirty or not link.is_ready or self.journal is not None:
            self._keep(link, is_whole=True)

    def on_append_ack(self, acknowledgement: AppendAck) -> None:
        """Takes in an acknowledgement of a keeper, and releases what waited for it."""
        link = self.keepers.get(acknowledgement.slot)
        if link is not None and acknowledgement.incarnation == self.incarnation:
            link.acknowledge(acknowledgement)
            if self.coverage is not None:
                self.coverage.acknowledged(held_by(self.keepers.values()), self.logs)
            self.pump()

    def _release_output(self) -> None:
        if self.external is None:
            return
        for chunk in self.external.release(list(self.keepers.values()), self.needs_keepers):
            self.shell.write_external(
                self.task, self.incarnation, chunk.first_seq, chunk.count, chunk.kind, chunk.payload
            )

    def on_await_replicated(self, thread: ThreadId, end_bytes: int) -> None:
        """Holds a call with an effect until the keepers have its causes."""
        self.calls.append((thread, end_bytes, self.requirement()))
        self.pump()

    def _release_calls(self) -> None:
        links = list(self.keepers.values())
        if not links and self.needs_keepers:
            return
        while self.calls and all(link.satisfies(self.calls[0][2]) for link in links):
            thread, end_bytes, _ = self.calls.pop(0)
            self.shell.replicated_to(self.task, thread, end_bytes)

    # ------------------------------------------------------------------ moves

    def begin_handover(self) -> None:
        """Notes what keepers must hold before the task, which makes no step any more, may move."""
        self.handover = self.requirement()
        self.pump()

    def end_handover(self) -> None:
        """The task goes on, because its move was given up."""
        self.handover = None

    @property
    def may_hand_over(self) -> bool:
        """Whether the external system has confirmed all output, and the keepers hold what the task has done."""
        if self.handover is None or (self.external is not None and self.external.has_unconfirmed):
            return False
        links = self.keepers.values()
        if not self.needs_keepers and not (self.sends_outcomes and links):
            return True
        return bool(links) and all(link.satisfies(self.handover) for link in links)

    # ------------------------------------------------------------------ the journal

    @property
    def recovered_journal(self) -> bytes:
        """Bytes of the journal that the task is given when it starts."""
        return self.journal.recovered if self.journal is not None else b""

    def adopt_journal(
        self, snapshot: Snapshot | None, found: Delta | None, left: Delta | None, lost_since: int | None
    ) -> None:
        """Begins the journal where the restored state ends; see ``SourceJournal.adopt``."""
        if self.journal is not None:
            self.journal.adopt(snapshot.journal_offset_bytes if snapshot is not None else 0, found, left, lost_since)

    def on_journal_data(self, data: bytes) -> None:
        """Takes in whole records that have come from a producer; they are released when keepers hold them."""
        assert self.journal is not None, self.task
        self.journal.append(data)
        self.grown(self.journal.id)
        self.pump()
        self.journal.update_hold()

    def truncate_journal(self, offset_bytes: int) -> None:
        """Drops what a completed checkpoint has of the journal, and tells the keepers where it begins now."""
        assert self.journal is not None, self.task
        self.journal.truncate(offset_bytes)
        for link in self.keepers.values():
            if link.is_ready:
                self._keep(link, is_whole=False)

    # ------------------------------------------------------------------ heartbeat and end

    def tick(self) -> None:
        """Repeats to each keeper what it has not acknowledged."""
        for link in self.keepers.values():
            link.await_nothing()
            self._keep_all(link)
        if self.journal is not None:
            self.journal.open_if_due()

    def validate(self) -> None:
        """Asserts what holds between two events."""
        for link in self.keepers.values():
            link.validate(self.logs)
        if self.external is not None:
            self.external.validate()
        if self.journal is not None:
            self.journal.validate()

    def close(self) -> None:
        """Closes the channel to the external system, because the incarnation has ended."""
        if self.external is not None:
            self.external.log.close()
            self.shell.close_external(self.task, self.incarnation)

    def close_journal(self, view: View, is_succeeded_here: bool) -> Delta | None:
        """Closes the journal; returns what it leaves for a successor in this slot."""
        return self.journal.close(view, is_succeeded_here) if self.journal is not None else None

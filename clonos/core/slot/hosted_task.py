"""One incarnation of a task as its slot sees it: recovery, channels, snapshots, keepers, the outside.

Owned by the slot's thread. The task's own thread reaches it by ``Emission`` and the few questions of ``TaskPort``.
Each rule of the protocol is one method, named for it, that a mutant can replace.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from clonos.core.channel.inflight_log import InflightLog
from clonos.core.channel.input_channels import InputChannels
from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.channel.sender import Behind, ChannelSender, compare_claims, forget_output
from clonos.core.checkpoint.pending_snapshots import PendingSnapshot, PendingSnapshots
from clonos.core.external.output_gate import OutputGate
from clonos.core.log.causal_log import CausalLogs
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import ChannelId, LogId, TaskId, journal_of, log_of
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.task_port import Command, Emission, TaskHandle, Triggered
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.recovery import gathering as gather
from clonos.core.recovery import recovery_machine
from clonos.core.recovery.gathering import Gathering, Holder, begin_gathering, recovered_logs
from clonos.core.slot.task_start import start
from clonos.core.standby.shadow_feed import ShadowFeeds
from clonos.core.standby.takeover import adopt_shadow, take_over
from clonos.core.wire.channel_messages import ChannelHandshake
from clonos.core.wire.control_messages import Completed, Placement, View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import AnnounceStep, LogReply, LogRequest, TaskFailed

if TYPE_CHECKING:
    from clonos.core.slot.slot import Slot
    from clonos.core.standby.shadow import Shadow


class HostedTask:
    """An incarnation that lives in this slot."""

    def __init__(self, slot: Slot, placement: Placement) -> None:
        self.slot, self.plan, self.shell = slot, slot.plan, slot.shell
        self.placement = placement
        self.task, self.incarnation = placement.task, placement.incarnation
        self.own_log = log_of(self.task)
        self.thread = slot.number_thread()  # or that of the shadow whose thread it goes on with
        self.promoted_shadow: Shadow | None = None  # that it goes on from
        self.fed_bytes = 0  # end of the log that the shadow was given
        self.shadow_feeds = ShadowFeeds(self)
        self.logs = CausalLogs()
        self.coverage = Coverage.wanted(self.plan, self.task, slot.id)
        self.found_bytes = 0  # how far the furthest copy of the own log reached
        self.sendings: dict[ChannelId, ChannelSender] = {}
        self.inputs, self.effects = InputChannels(self), OutputGate(self)
        self.sharers: dict[LogId, list[ChannelSender]] = {}
        self.pending = PendingSnapshots(placement.objects)
        self.snapshot: Snapshot | None = None
        self.mirror: Mirror | None = None
        self.handle: TaskHandle | None = None
        self.queued: list[Command] = []  # until the task has a handle
        self.handshakes: dict[ChannelId, ChannelHandshake] = {}  # stated before this incarnation could use them
        self.asked: Triggered | None = None  # the highest barrier asked of a source before it was started
        self.failed: TaskFailed | None = None
        self.announced_step: AnnounceStep | None = None  # what a cautious task waits to have noted
        self.is_final = self.is_out_of_budget = False
        self.handled_bytes = 0  # of what the task has emitted, as credit counts
        self.records_in: int | None = None  # since the job's start; None before the first step
        self.state: recovery_machine.State = recovery_machine.Recovering(
            begin_gathering(self.plan, slot.view, self.task), not placement.objects
        )

    # ------------------------------------------------------------------ recovery

    def begin(self) -> None:
        """Asks the holders, restores the state."""
        adopt_shadow(self)
        self.ask_holders()
        if self.placement.objects and self.promoted_shadow is None:
            self.slot.restore(self)
        if isinstance(self.state, recovery_machine.Recovering):
            self.advance(recovery_machine.Gathered(self.state.gathering))

    def advance(self, event: recovery_machine.Event) -> None:
        """One step of the table, and what it asks for."""
        before, (self.state, effects) = self.state, recovery_machine.step(self.state, event)
        if type(before) is not type(self.state):
            self.slot.status_is_due = True
        for effect in effects:
            match effect:
                case recovery_machine.Connect(gathering):
                    self._connect(gathering)
                case recovery_machine.Start():
                    start(self)
                case recovery_machine.GoLive():
                    self.shell.go_live(self.task, self.thread)
                case recovery_machine.Compare(positions):
                    self.end_log(dict(positions))
                case recovery_machine.ReportLost():
                    self.report_lost()

    def ask_holders(self) -> None:
        """Questions to whoever has not answered; repeated at the heartbeat."""
        if isinstance(self.state, recovery_machine.Recovering):
            view = self.state.gathering.view
            for holder in sorted(self.state.gathering.waiting_for):
                question = LogRequest(self.task, self.incarnation, view, holder.task, holder.is_keeper)
                self.shell.send(holder.slot, question)

    def gather_again(self, view: View) -> None:
        """Another view has arrived: asks everybody again under it."""
        if isinstance(self.state, recovery_machine.Recovering) and not self.state.gathering.is_complete:
            gathering = gather.ask_again(begin_gathering(self.plan, view, self.task), self.state.gathering)
            self.state = recovery_machine.Recovering(gathering, self.state.is_restored)
            self.ask_holders()
            self.advance(recovery_machine.Gathered(self.state.gathering))

    def on_log_reply(self, answer: LogReply) -> None:
        """A holder has answered."""
        if isinstance(self.state, recovery_machine.Recovering):
            gather.check_answer(self.plan, answer, self.placement.log_offset_bytes)
            holder = Holder(answer.holder, answer.is_keeper, answer.slot)
            gathering = gather.collect_reply(self.state.gathering, answer.view, holder, answer.replicas)
            if gathering is not self.state.gathering:
                self.advance(recovery_machine.Gathered(gathering))

    def restored(self, snapshot: Snapshot | None, mirror: Mirror | None) -> None:
        """State as of the checkpoint that the view names."""
        self.snapshot, self.mirror = snapshot, mirror
        if isinstance(self.state, recovery_machine.Recovering) and not self.state.is_restored:
            self.advance(recovery_machine.Restored())

    def _connect(self, gathering: Gathering) -> None:
        found, self.found_bytes = recovered_logs(gathering, self.plan, self.task, self.placement.log_offset_bytes)
        self.adopt_logs(found)
        self._open_channels()
        if self.promoted_shadow is not None:
            take_over(self)
        elif self.snapshot is not None and self.snapshot.final:
            self.pending.unsettled.append(PendingSnapshot(self.snapshot, self.placement.objects, 0))
            self.is_final = True
        self.apply_view(self.slot.view)
        for statement in self.handshakes.values():
            with suppress(MessageMalformed):  # whose connection it came by is not known any more
                self.on_handshake(statement)
        self.handshakes.clear()
        self.stated()

    def adopt_logs(self, found: dict[LogId, Delta]) -> None:
        """The longest copies become this incarnation's logs, as bytes; the own one from the restored offset on."""
        base = self.placement.log_offset_bytes
        own = found.pop(self.own_log, None)
        data = b""
        if own is not None:
            assert own.offset_bytes <= base, (self.task, own, base)
            data = own.data[base - own.offset_bytes :]
        self.logs.begin(self.own_log, base, data)
        if self.coverage is not None:
            self.coverage.grew(self.own_log)
        if self.effects.journal is not None:
            self.effects.journal.adopt(found.pop(journal_of(self.task), None))
        for log, delta in found.items():
            self.logs.begin(log, delta.offset_bytes, delta.data)
            if self.coverage is not None:
                self.coverage.grew(log)

    def _open_channels(self) -> None:
        self.inputs.open(self.snapshot)
        nexts = dict(self.snapshot.outputs) if self.snapshot else {}
        for channel in self.plan.outputs[self.task]:
            if self.promoted_shadow is not None:
                log = self.promoted_shadow.outputs[channel.id]
            else:
                log = InflightLog(channel.id, nexts.get(channel.id, 0), self.slot.pressure.budget)
            if channel.receiver is None:
                self.effects.open(log)
                continue
            shared = () if self.coverage is not None else self.plan.shared_on[channel.id]
            sending = self.sendings[channel.id] = ChannelSender(channel, log, shared, self.coverage)
            for shared_log in sending.shared:
                self.sharers.setdefault(shared_log, []).append(sending)

    def apply_view(self, view: View) -> None:
        """Takes over whom a view names at the other ends, and the keepers."""
        self.placement = view.placements[self.task]
        if isinstance(self.state, recovery_machine.Recovering):
            return
        if self.coverage is not None:
            self.coverage.apply_view(view)
        for sending in self.sendings.values():
            sending.apply_view(view.placements[sending.receiving_task].incarnation)
        self.inputs.apply_view(view)
        self.effects.apply_view(self.placement.keepers)
        self.shadow_feeds.apply_view(self.placement.standbys)
        self.update_output_budget()

    def stated(self) -> None:
        """A claim has come, or a receiver has been replaced: the table decides."""
        is_missing = any(sending.claim is None for sending in self.sendings.values()) or self.effects.is_unregistered
        self.advance(recovery_machine.Stated(is_missing))

    def end_log(self, positions: dict[ChannelId, int]) -> None:
        """The lost-log rule: no new determinant while a receiver, a holder or the outside has more than is here."""
        end_bytes = self.logs.end_bytes(self.own_log)
        behind, is_awaiting = compare_claims(positions, self.sendings, self.effects.claim, end_bytes)
        if self.found_bytes > end_bytes and behind is None:
            behind = Behind(None, end_bytes, self.found_bytes)
        if not self.slot.options.causal_logging:
            behind, is_awaiting = None, False
        self.advance(
            recovery_machine.LogEnded(tuple(sorted(positions.items())), None if is_awaiting else behind, is_awaiting)
        )

    def lose_journal(self) -> None:
        """The log reads what the journal does not have: as lost as a log."""
        self.advance(recovery_machine.JournalMissing())

    def report_lost(self) -> None:
        """Tells the coordinator; repeated at the heartbeat."""
        if isinstance(self.state, recovery_machine.Lost):
            self.slot.send_to_coordinator(recovery_machine.report_of(self.task, self.incarnation, self.state))

    # ------------------------------------------------------------------ receiving

    def grown(self, log: LogId) -> None:
        """A log that is held here has grown: it rides on with what is sent next."""
        for sending in self.sharers.get(log, ()):
            sending.dirty[log] = None
        self.effects.grown(log)
        self.shadow_feeds.grown(log)

    def command(self, command: Command) -> None:
        """To the task, or for it until it is started."""
        if self.handle is None:
            self.queued.append(command)
        else:
            self.handle.put(command)

    def compare_again(self) -> None:
        """A view has been installed: a receiver that was replaced may let a stalled task go on, or hold it."""
        if not isinstance(self.state, recovery_machine.Recovering):
            self.stated()

    # ------------------------------------------------------------------ sending

    def on_handshake(self, statement: ChannelHandshake) -> None:
        """A receiver states: resume where it says."""
        sending = self.sendings.get(statement.channel)
        if sending is None:
            self.handshakes[statement.channel] = statement
            return
        if statement.sender != self.incarnation or statement.receiver != sending.receiver:
            return
        was_missing = sending.claim is None or not sending.session
        sending.open(statement, self.logs)
        self.pump(sending)
        self.update_output_budget()
        if was_missing:
            self.stated()

    def pump(self, sending: ChannelSender) -> None:
        """Sends what credit allows."""
        slot = self.slot.view.placements[sending.receiving_task].slot
        if slot is not None:
            sending.pump(self.logs, self.incarnation, partial(self.shell.send, slot))

    def on_emission(self, emission: Emission) -> None:
        """The task has done a step: its log grows first, then what depends on it leaves."""
        if emission.log:
            self.logs.append(self.own_log, emission.log)
            if self.coverage is not None:
                self.coverage.grew(self.own_log)
            self.grown(self.own_log)
        touched: dict[ChannelId, ChannelSender] = {}
        for output in emission.outputs:
            sending = self.sendings.get(output.channel)
            if sending is None:
                self.effects.append(output)
            else:
                sending.append(output.kind, output.count, output.checkpoint, output.payload)
                touched[output.channel] = sending
        for consumed in emission.consumed:
            self.inputs.processed(*consumed)
        if emission.snapshot is not None:
            self.take_snapshot(emission.snapshot, emission.prepared, emission.more, emission.whole)
        for sending in touched.values():
            self.pump(sending)
        self.effects.pump()
        self.shadow_feeds.on_emission(emission)
        if self.effects.journal is not None:
            self.effects.journal.read(emission.journal_read_bytes)
        if emission.records_in:  # not told in mid-step
            self.records_in = emission.records_in
        self.handled_bytes += emission.cost_bytes
        self.update_output_budget()

    def update_output_budget(self) -> None:
        """No new step while the credit of a live session is used up; sources stop at the soft limit too."""
        budget_bytes = min((each.budget_bytes for each in self.sendings.values() if each.session), default=UNLIMITED)
        if self.slot.pressure.pauses_sources and not self.plan.inputs[self.task]:
            budget_bytes = 0
        self.shell.set_output_budget(self.task, self.thread, budget_bytes, self.handled_bytes)
        if self.is_out_of_budget != (budget_bytes <= 0):
            self.is_out_of_budget = budget_bytes <= 0
            if self.effects.journal is not None:
                self.effects.journal.update_hold()

    # ------------------------------------------------------------------ snapshots

    def take_snapshot(
        self, snapshot: Snapshot, parts: tuple[bytes, ...], more: Pieces | None = None, whole: Pieces | None = None
    ) -> None:
        """A barrier's snapshot is to be stored under this incarnation, whatever its thread began as."""
        if snapshot.incarnation != self.incarnation:
            snapshot = msgspec.structs.replace(snapshot, incarnation=self.incarnation)
        name = self.pending.take(snapshot, parts, self.effects.position_in(snapshot), more)
        self.is_final = snapshot.final
        self.shell.write_snapshot(name, snapshot, more)
        if whole is not None:
            self.shell.write_whole(*self.pending.begin_whole(snapshot), whole)

    def on_snapshot_written(self, name: str, payload: bytes) -> None:
        """Durable: the standbys get it, the coordinator hears of it."""
        entry = self.pending.written(name)
        if entry is not None:
            for slot in self.placement.standbys:
                self.shell.send(slot, entry.update, payload)
        self.acknowledge_snapshots()

    def acknowledge_snapshots(self) -> None:
        """A sink's snapshot counts when the outside has confirmed all its output before the barrier."""
        for message in self.pending.acknowledgements(self.task, self.incarnation, self.effects.confirmed_seq):
            self.slot.send_to_coordinator(message)

    def on_completed(self, completed: Completed) -> None:
        """Logs, replicas and in-flight logs before the checkpoint go."""
        for task, _, offset_bytes in completed.tasks:
            self.logs.truncate(log_of(task), offset_bytes)
        snapshot = self.pending.complete(completed.checkpoint)
        if snapshot is None:
            return
        forget_output(self.sendings, snapshot)
        self.effects.on_completed(snapshot)
        if self.effects.journal is not None:
            self.effects.journal.truncate(snapshot.journal_offset_bytes)

    def on_trigger(self, message: Triggered) -> None:
        """A source notes the highest barrier asked, and obeys when its log has ended."""
        if self.asked is None or message.checkpoint >= self.asked.checkpoint:
            self.asked = message
            if self.effects.journal is not None and message.then_pause:
                self.effects.journal.stop()
            if self.handle is not None:
                self.handle.put(message)

    # ------------------------------------------------------------------ heartbeat and end

    def tick(self) -> None:
        """Whatever wants an answer is repeated."""
        self.ask_holders()
        self.report_lost()
        for report in (self.failed, self.announced_step):
            if report is not None:
                self.slot.send_to_coordinator(report)
        for sending in self.sendings.values():
            if sending.session:
                slot = self.slot.view.placements[sending.receiving_task].slot
                if slot is not None:
                    self.shell.send(slot, sending.position(self.logs, self.incarnation))
        self.inputs.tick()
        self.effects.tick()
        self.shadow_feeds.tick()
        self.acknowledge_snapshots()

    def close(self) -> None:
        """The incarnation is over here."""
        for sending in self.sendings.values():
            sending.log.close()
        self.effects.close()
        self.shell.stop_task(self.task, self.thread)

    def question(self, wanted: TaskId) -> tuple[Delta, ...]:
        """What this task has of the log of ``wanted`` and of the replicas that it should hold; while it recovers, what
        it has been answered itself so far."""
        logs = self.plan.asked_for(wanted)
        if isinstance(self.state, recovery_machine.Recovering):
            found = gather.gathered_logs(self.state.gathering)
            return tuple(found[log] for log in logs if log in found)
        return self.logs.deltas(logs)

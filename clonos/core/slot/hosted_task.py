"""One incarnation of a task in its slot: composes recovery, channels, snapshots, keepers and output (protocol 6).

Each part owns its fields and knows nothing of the others. This class hands each part what it needs of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from clonos.core.channel.inflight_log import InflightLog
from clonos.core.channel.input_channels import InputChannels
from clonos.core.channel.output_channels import OutputChannels
from clonos.core.channel.repeated_rows import RowNotRepeated
from clonos.core.channel.sender import ChannelSender, ChannelStuck
from clonos.core.checkpoint.pending_snapshots import PendingSnapshot, PendingSnapshots
from clonos.core.external.output_gate import OutputGate
from clonos.core.log.causal_log import CausalLogs
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import (
    COORDINATOR,
    ChannelId,
    Incarnation,
    LogId,
    TaskId,
    ThreadId,
    journal_of,
    log_of,
    term_of,
    view_number,
)
from clonos.core.model.options import OnDivergence
from clonos.core.model.plan import Channel
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_port import Delivered, TaskEmission, Triggered
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.recovery import recovery_machine
from clonos.core.recovery.gathering import Gathering, has_replicated_log, recovered_logs
from clonos.core.recovery.task_recovery import TaskRecovery
from clonos.core.slot.hosted_thread import HostedThread
from clonos.core.standby.shadow import Shadow
from clonos.core.standby.shadow_feed import ShadowFeeds
from clonos.core.standby.slot_context import SlotContext
from clonos.core.wire.channel_messages import Batch, ChannelHandshake
from clonos.core.wire.control_messages import Completed, Placement, View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import AnnounceAck, AnnounceStep, LogReply, Recourse, TaskFailed


class HostedTask:
    """Incarnation that lives in this slot."""

    def __init__(
        self,
        context: SlotContext,
        view: View,
        placement: Placement,
        journal: Delta | None,
        is_paused: bool,
        on_taken_over: Callable[[TaskId], None],
    ) -> None:
        """``journal``: left here by the incarnation before; ``on_taken_over``: its shadow is this task now."""
        self.context, self.plan, self.shell = context, context.plan, context.shell
        self.view, self.placement = view, placement
        self.task, self.incarnation = placement.task, placement.incarnation
        self.own_log = log_of(self.task)
        self.promoted_shadow: Shadow | None = None  # that it goes on from
        self.logs = CausalLogs(context.log_offsets)
        self.coverage = Coverage.wanted(self.plan, self.task, context.slot)
        self.found_bytes = 0  # how far the furthest copy of the own log reached
        self.running = HostedThread(self.task, next(context.threads), self.shell)
        head, options, parts = (self.task, self.incarnation), context.options, (self.logs, self.coverage)
        self.inputs = InputChannels(self.incarnation, *parts, options, self.shell, self.grown)
        self.outputs = OutputChannels(self.incarnation, *parts, self.shell)
        self.output_gate = OutputGate(*head, self.plan, options, *parts, self.shell, self.running)
        is_hot = self.task in self.plan.hot
        self.shadow_feeds = ShadowFeeds(*head, is_hot, self.logs, self.shell, options.inflight_memory_bytes)
        self.shadow_feeds.apply_view(placement.standbys)
        self.pending = PendingSnapshots(placement.objects)
        self.snapshot: Snapshot | None = None
        self.mirror: Mirror | None = None
        self.is_final, self.is_paused = False, is_paused
        self._has_warned = False
        self._left_journal, self._on_taken_over = journal, on_taken_over
        self.recovery = TaskRecovery(self.plan, self.shell, view, placement)
        self.reports = TaskReports(*head, self.shell)

    @property
    def thread(self) -> ThreadId:
        """Number of its thread, from which it takes emissions."""
        return self.running.number

    @property
    def state(self) -> recovery_machine.State:
        """State in the table of recovery."""
        return self.recovery.state

    # ------------------------------------------------------------------ recovery

    def begin(self) -> None:
        """Asks the holders of the log."""
        self.advance(self.recovery.begin())

    def advance(self, event: recovery_machine.Event | None) -> None:
        """Takes one step of the table, if there is an event, and performs its effects."""
        before, effects = type(self.state), self.recovery.step(event) if event is not None else ()
        if before is not type(self.state):
            self.context.on_status_change()
        for effect in effects:
            match effect:
                case recovery_machine.Connect(gathering):
                    self._connect(gathering)
                case recovery_machine.Start():
                    self._start()
                case recovery_machine.GoLive():
                    self.shell.go_live(self.task, self.thread)
                case recovery_machine.Compare(positions):
                    self.end_log(dict(positions))
                case recovery_machine.ReportLost():
                    self.recovery.report_lost()

    def on_log_reply(self, reply: LogReply) -> None:
        """Takes in the reply of a holder."""
        self.advance(self.recovery.on_log_reply(reply, self.placement.log_offset_bytes))

    def restored(self, snapshot: Snapshot | None, mirror: Mirror | None) -> None:
        """Takes the state as of the checkpoint that the view names."""
        self.snapshot, self.mirror = snapshot, mirror
        if self.recovery.needs_state:
            self.advance(recovery_machine.Restored())

    def _connect(self, gathering: Gathering) -> None:
        found, self.found_bytes = recovered_logs(gathering, self.plan, self.task, self.placement.log_offset_bytes)
        self.adopt_logs(found)
        self._open_channels(not (self.placement.is_fresh or has_replicated_log(gathering, self.view, self.task)))
        if self.promoted_shadow is not None:
            self.take_over(self.promoted_shadow)
        elif self.snapshot is not None and self.snapshot.final:
            self.pending.adopt_final(PendingSnapshot(self.snapshot, self.placement.objects, 0))
            self.is_final = True
        self.apply_view(self.view)
        for handshake in self.outputs.take_early():
            with suppress(MessageMalformed):  # the connection that it came by is not known any more
                self.on_handshake(handshake)
        self.check_handshakes()

    def adopt_logs(self, found: dict[LogId, Delta]) -> None:
        """Adopts the longest copies as bytes; the own log from the restored offset on."""
        base = self.placement.log_offset_bytes
        own = found.pop(self.own_log, None)
        assert own is None or own.offset_bytes <= base, (self.task, own, base)
        self.logs.begin(self.own_log, base, own.data[base - own.offset_bytes :] if own is not None else b"")
        copies = found.pop(journal_of(self.task), None), self._left_journal
        lost_since = None if self.placement.is_first else self.view.generation
        self.output_gate.adopt_journal(self.snapshot, *copies, lost_since)
        for delta in found.values():
            self.logs.receive(delta)
        if self.coverage is not None:
            for log in (self.own_log, *found):
                self.coverage.grew(log)

    def _open_channels(self, lacks_log: bool) -> None:
        restored = self.snapshot
        is_final = restored is not None and restored.final
        is_older = restored is None or int(restored.incarnation) < self.view.generation
        self.inputs.open(self.plan.inputs[self.task], self.snapshot, self.logs.replicas[self.own_log])
        nexts = dict(self.snapshot.outputs) if self.snapshot else {}
        for channel in self.plan.outputs[self.task]:
            if self.promoted_shadow is not None:
                log = self.promoted_shadow.outputs[channel.id]
            else:
                log = InflightLog(channel.id, nexts.get(channel.id, 0), self.context.budget)
            if channel.receiver is None:
                self.output_gate.open(
                    log,
                    self.view,
                    self.placement.confirmed_seq,
                    may_come_again=is_older
                    and not (is_final or self.view.begins_at_cut or self._follows_a_stop(restored)),
                    lacks_log=lacks_log and not is_final,
                )
                if restored is not None and not is_older:
                    self.output_gate.hold_after(restored)
            else:
                self.outputs.add(channel, log, () if self.coverage is not None else self.plan.shared_on[channel.id])

    def _follows_a_stop(self, restored: Snapshot | None) -> bool:
        """Whether no output has left after the restored state: the job begins, or the term before stopped there."""
        if restored is None or not restored.is_at_stop:
            return self.view.generation == view_number(1, 1)
        return self.view.generation == view_number(term_of(restored.incarnation) + 1, 1)

    def _start(self) -> None:
        """Lets the task's thread follow its log: starts it, or gives that of a shadow the rest."""
        own = self.logs.replicas[self.own_log]
        if self.running.is_attached:
            self.running.follow_rest(own, self.placement.is_single_step)
        else:
            journal, received_up_to = self.output_gate.recovered_journal, self.output_gate.received_up_to or 0
            self.running.start(self.view, self.placement, self.snapshot, self.mirror, own, journal, received_up_to)
            self.mirror = None
        self.update_output_budget()
        self.running.flush()

    def apply_view(self, view: View) -> None:
        """Takes over which incarnations a view names at the other ends, and the keepers."""
        self.view, self.placement = view, view.placements[self.task]
        self.shadow_feeds.apply_view(self.placement.standbys)
        if self.recovery.is_recovering:
            return
        if self.coverage is not None:
            self.coverage.apply_view(view)
        self.outputs.apply_view(view)
        self.inputs.apply_view(view)
        self.output_gate.apply_view(view)
        if self.placement.is_suspended:
            self.output_gate.begin_handover() if self.is_final else self.running.suspend()
        else:
            self.output_gate.end_handover()
            self.running.resume()
        self.running.cut_at(view.cut)
        self.update_output_budget()

    def check_handshakes(self) -> None:
        """Lets the table decide, because a handshake has arrived or a receiver has been replaced."""
        is_missing = self.outputs.lacks_handshake or self.output_gate.is_unregistered
        self.advance(recovery_machine.HandshakesReceived(is_missing))

    def end_log(self, positions: dict[ChannelId, int]) -> None:
        """Applies the lost-log rule: no new determinant while a receiver or a holder has more than is here."""
        end_bytes = self.logs.end_bytes(self.own_log)
        external_seq = self.output_gate.high_water_mark
        behind, is_awaiting = self.outputs.compare(positions, external_seq, end_bytes, self.found_bytes)
        if not self.context.options.causal_logging:
            behind, is_awaiting = None, False
        elif behind is None and not is_awaiting and (found := self.outputs.take_divergence()) is not None:
            fault = self._divergence(*found)
            if self.context.options.on_divergence is not OnDivergence.ACCEPT:  # the task does not go live
                self.reports.fail(failure_of(self.task, self.incarnation, fault, with_traceback=False))
                return
            self.warn_of_divergence(str(fault).partition("\n")[0])
        ends, lost = tuple(sorted(positions.items())), None if is_awaiting else behind
        self.advance(recovery_machine.LogEnded(ends, lost, is_awaiting))

    def _divergence(self, channel: Channel, seq: int) -> RowNotRepeated:
        """Returns the error for a replay that has made other output than the first execution."""
        return RowNotRepeated(self.plan.task_name(self.task), self.plan.task_name(channel.receiving_task), seq)

    def warn_of_divergence(self, what: str) -> None:
        """Reports once that the replay has differed and that the task goes on in spite of that."""
        if not self._has_warned:
            self._has_warned = True
            text = f"{what} The task goes on, because on_divergence is accept: its state and its output may disagree"
            self.shell.warn(text, task=self.plan.task_name(self.task))

    # ------------------------------------------------------------------ shadows

    def adopt_shadow(self, shadow: Shadow) -> bool:
        """Counts what the shadow holds as one more reply; returns whether the task continues from where it stands."""
        assert shadow.is_sealed, self.task
        if shadow.stands_at(self.placement.restore):
            self.promoted_shadow = shadow
            self.snapshot = shadow.reached[self.placement.restore]
        held = shadow.held(self.placement.log_offset_bytes)
        self.recovery.add_reply(self.context.slot, held, self.promoted_shadow is not None)
        return self.promoted_shadow is not None

    def drop_shadow(self) -> None:
        """Needs its state restored as if there had been no shadow, because that has failed before it took over."""
        self.promoted_shadow = self.snapshot = None
        self.recovery.lose_state()

    def take_over(self, shadow: Shadow) -> None:
        """Continues with the shadow's thread: stands where an incarnation that had replayed so far would stand."""
        assert self.snapshot is not None, self.task
        self.running.take_over(shadow)
        self.inputs.take_over(shadow.receivers, shadow.needed)
        self.outputs.truncate(self.snapshot.outputs)  # the slot may not know yet that its checkpoint is complete
        for checkpoint, snapshot in sorted(shadow.reached.items()):
            if checkpoint > self.placement.restore:
                self.take_snapshot(snapshot, (), shadow.more.get(checkpoint))
        self._on_taken_over(self.task)

    # ------------------------------------------------------------------ receiving

    def on_batch(self, batch: Batch, payload: bytes | memoryview) -> None:
        """Takes in elements: deltas first, then the elements for the task."""
        receiver = self.inputs.take_in(batch)
        if receiver is None:
            return
        skip = receiver.accept(batch, len(payload))
        if skip is not None:
            receiver.keep_last(batch, payload)
            elements = batch.channel, batch.kind, batch.count, skip, batch.checkpoint, payload
            self.running.put(Delivered(*elements, batch.mark))
            if self.shadow_feeds.is_hot:
                self.shadow_feeds.took(batch, skip, payload)
        if receiver.grant():
            self.inputs.send_handshake(receiver)

    def grown(self, log: LogId) -> None:
        """Marks a log that is held here and has grown: it travels with what is sent next."""
        self.outputs.grown(log)
        if self.output_gate.keepers:
            self.output_gate.grown(log)
        if self.shadow_feeds.feeds:
            self.shadow_feeds.grown(log)

    # ------------------------------------------------------------------ sending

    def on_handshake(self, handshake: ChannelHandshake) -> None:
        """Resumes a channel where the receiver asks."""
        sender = self.outputs.receive(handshake)
        if sender is not None:
            was_missing = self.outputs.open_session(sender, handshake)
            self.update_output_budget()
            if was_missing:
                self.check_handshakes()

    def on_emission(self, emission: TaskEmission) -> None:
        """Takes a step of the task: its log grows first, then what depends on it leaves."""
        if emission.log:
            self.logs.append(self.own_log, emission.log)
            if self.coverage is not None:
                self.coverage.grew(self.own_log)
            self.grown(self.own_log)
        touched: dict[ChannelId, ChannelSender] = {}
        for output in emission.outputs:
            sender = self.outputs.senders.get(output.channel)
            if sender is None:
                self.output_gate.append(output)
            else:
                sender.append(output.kind, output.count, output.checkpoint, output.payload, emission.mark)
                touched[output.channel] = sender
        for consumed in emission.consumed:
            self.inputs.processed(*consumed)
        if emission.snapshot is not None:
            self.take_snapshot(emission.snapshot, emission.prepared, emission.more, emission.whole)
        for sender in touched.values():
            self.outputs.pump(sender)
        self.output_gate.pump()
        if self.shadow_feeds.is_hot:
            may_begin = emission.snapshot is not None and isinstance(self.state, recovery_machine.Live)
            self.shadow_feeds.on_emission(emission, self.inputs.received if may_begin else None)
        if self.output_gate.journal is not None:
            self.output_gate.journal.read(emission.journal_read_bytes)
        self.running.on_emission(emission)
        if self.running.has_paused(emission) or (self.is_final and self.placement.is_suspended):
            self.output_gate.begin_handover()
        self.update_output_budget()

    def update_output_budget(self) -> None:
        """Allows no new step while the credit of a live session is used up; sources stop at the soft limit too."""
        budget_bytes = self.outputs.budget_bytes
        if self.is_paused and not self.plan.inputs[self.task]:
            budget_bytes = 0
        self.shell.set_output_budget(self.task, self.running.number, budget_bytes, self.running.handled_bytes)
        if self.output_gate.journal is not None:
            self.output_gate.journal.set_out_of_budget(budget_bytes <= 0)

    def pause_sources(self, is_paused: bool) -> None:
        """Takes over whether sources of this slot may read."""
        self.is_paused = is_paused
        self.update_output_budget()

    def on_segment_loaded(self, channel: ChannelId) -> None:
        """Continues with a channel whose segment is in memory again."""
        sender = self.outputs.senders.get(channel)
        if sender is None:
            self.output_gate.pump()
        else:
            self.outputs.pump(sender)
            self.update_output_budget()

    # ------------------------------------------------------------------ snapshots

    def take_snapshot(
        self, snapshot: Snapshot, parts: tuple[bytes, ...], more: Pieces | None = None, whole: Pieces | None = None
    ) -> None:
        """Stores a barrier's snapshot under this incarnation, whatever its thread began as."""
        if snapshot.incarnation != self.incarnation:
            snapshot = msgspec.structs.replace(snapshot, incarnation=self.incarnation)
        confirmed_seq = self.output_gate.position_in(snapshot)
        self.output_gate.hold_after(snapshot)
        name = self.pending.take(snapshot, parts, confirmed_seq, more, self.output_gate.is_acknowledged)
        self.is_final = snapshot.final
        self.shell.write_snapshot(name, snapshot, more)
        if whole is not None:
            self.shell.write_whole(*self.pending.begin_whole(snapshot), whole)

    def on_snapshot_written(self, name: str, payload: bytes, stored_as: str) -> None:
        """Sends a snapshot that is durable to the standbys, and acknowledges it."""
        if (entry := self.pending.written(name, stored_as)) is not None:
            for slot in self.placement.standbys:
                self.shell.send(slot, entry.update, payload)
        self.acknowledge_snapshots()

    def acknowledge_snapshots(self) -> None:
        """Acknowledges snapshots; a sink's when the external system has confirmed all output before the barrier."""
        for message in self.pending.acknowledgements(self.task, self.incarnation, self.output_gate.confirmed_seq):
            self.shell.send(COORDINATOR, message)

    def on_completed(self, completed: Completed) -> None:
        """Truncates logs, replicas and in-flight logs up to a completed checkpoint."""
        self.logs.drop_completed()
        if (snapshot := self.pending.complete(completed.checkpoint)) is not None:
            self.outputs.truncate(snapshot.outputs)
            self.output_gate.on_completed(snapshot)

    def on_trigger(self, message: Triggered) -> None:
        """Asks a source for a barrier; the source takes in nothing more where the job stops after it."""
        if self.running.is_superseded(message):
            return
        if message.then_pause and self.output_gate.journal is not None:
            self.output_gate.journal.stop()
        self.running.ask(message)

    # ------------------------------------------------------------------ heartbeat and end

    def tick(self) -> None:
        """Repeats at the heartbeat what waits for an answer."""
        self.recovery.ask_holders()
        self.recovery.report_lost()
        self.reports.tick()
        self._fail_if_stuck()
        self.outputs.tick()
        self.inputs.tick()
        self.output_gate.tick()
        self.shadow_feeds.tick()
        self.acknowledge_snapshots()

    def _fail_if_stuck(self) -> None:
        """Fails the task if a channel repeats its handshake without progress. If the log of a sender does not have
        what its receiver asks for, no later incarnation helps."""
        refused, broken = self.outputs.take_stuck(), self.inputs.take_stuck()
        found = refused or broken
        if found is None or self.reports.failed is not None:
            return
        (channel, reason), recourse = found, Recourse.NONE if refused else Recourse.RETRY
        sender, receiver = self.plan.task_name(channel.sender), self.plan.task_name(channel.receiving_task)
        fault = ChannelStuck(f"from {sender} to {receiver}", reason.replace("it ", f"{receiver} ", 1))
        self.reports.fail(failure_of(self.task, self.incarnation, fault, recourse, with_traceback=False))

    def validate(self) -> None:
        """Asserts what holds between two events, in each part."""
        assert self.recovery.is_recovering == (self.inputs.view is None), self.state
        for part in (self.logs, self.inputs, self.outputs, self.output_gate, self.shadow_feeds, self.pending):
            part.validate()
        if self.coverage is not None:
            self.coverage.validate(self.logs)
        self.running.validate(self.logs.end_bytes(self.own_log))

    def close(self, view: View, successor: Placement | None) -> Delta | None:
        """Ends the incarnation here by a view; returns the journal that it leaves for the next one in this slot."""
        self.outputs.close()
        self.output_gate.close()
        is_here = successor is not None and successor.slot == self.context.slot
        left = self.output_gate.close_journal(view, is_here)
        self.shell.stop_task(self.task, self.thread)
        return left

    def logs_for(self, wanted: TaskId) -> tuple[Delta, ...]:
        """Returns the log of ``wanted`` and its replicas as far as they are here, or as holders have sent them."""
        logs = self.plan.logs_requested_by(wanted)
        return self.recovery.gathered(logs) if self.recovery.is_recovering else self.logs.deltas(logs)


class TaskReports:
    """Reports of one incarnation to the coordinator, repeated at the heartbeat until they are answered: a failure, and
    its next step (protocol 6.9)."""

    __slots__ = ("announced_step", "failed", "incarnation", "shell", "task")

    def __init__(self, task: TaskId, incarnation: Incarnation, shell: EffectCollector) -> None:
        self.task, self.incarnation, self.shell = task, incarnation, shell
        self.failed: TaskFailed | None = None
        self.announced_step: AnnounceStep | None = None  # what a task in single-step mode waits to have acknowledged

    @property
    def is_retried(self) -> bool:
        """Whether nothing has failed that another incarnation would not get over."""
        return self.failed is None or self.failed.recourse in (Recourse.RETRY, Recourse.ELSEWHERE)

    def fail(self, failed: TaskFailed) -> None:
        """Reports that something has failed that the incarnation needs."""
        self.failed = failed
        self.shell.send(COORDINATOR, failed)

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Announces the element that a task in single-step mode is about to take."""
        self.announced_step = AnnounceStep(self.task, self.incarnation, channel, first_seq)
        self.shell.send(COORDINATOR, self.announced_step)

    def on_acknowledged(self, announce_ack: AnnounceAck) -> bool:
        """Returns whether this acknowledges the step that the task waits with."""
        announced = self.announced_step
        if announced is None or (announced.channel, announced.first_seq) != (
            announce_ack.channel,
            announce_ack.first_seq,
        ):
            return False
        self.announced_step = None
        return True

    def tick(self) -> None:
        """Repeats the reports."""
        for report in (self.failed, self.announced_step):
            if report is not None:
                self.shell.send(COORDINATOR, report)

"""Machine of a slot: installs views, hosts tasks, standbys and keepers, answers log requests (protocol 3, 6).

``step`` takes an event (``slot_events``) and returns the effects (``slot_effects``) that its process shall perform. The
tables at the end say which method handles what. Messages of dead incarnations are dropped everywhere; those of a view
that is not installed yet are dropped too, but for a few that are kept for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from msgspec import structs

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import (
    COORDINATOR,
    ChannelId,
    CheckpointId,
    SlotId,
    TaskId,
    ThreadId,
    ViewNumber,
    journal_of,
    log_of,
)
from clonos.core.model.machine import Machine
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.slot_effects import Effect
from clonos.core.ports.task_port import Triggered
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.recovery import recovery_machine
from clonos.core.slot import slot_events as event
from clonos.core.slot.backpressure import Pressure
from clonos.core.slot.backups import Backups
from clonos.core.slot.captured import captured_elements, captured_log
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.slot_events import Event, HeartbeatDue, MessageReceived, PeerBack, PeerGone
from clonos.core.slot.source_drift import SourceDrift
from clonos.core.slot.storage_events import StorageEvents
from clonos.core.slot.story import Story
from clonos.core.slot.thread_events import LocalEvents
from clonos.core.slot.warm_ups import WarmUps
from clonos.core.standby.shadow import Shadow
from clonos.core.standby.slot_context import SlotContext
from clonos.core.wire.admission import check_for_slot, check_watermark
from clonos.core.wire.authorization import check_itself, check_lengths, check_life, sender_name
from clonos.core.wire.capture_messages import CaptureElements, CaptureLog
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import (
    Completed,
    DriftLimit,
    Hold,
    Release,
    SlotStatus,
    Suspicion,
    TaskStatus,
    TriggerCheckpoint,
    View,
    WarmUp,
)
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import AnnounceAck, LogReply, LogRequest
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow


class Slot(StorageEvents, LocalEvents):
    """One process of the job."""

    def __init__(self, slot_id: SlotId, plan: Plan, options: Options, new_mirror: Callable[[TaskId], Mirror]) -> None:
        self.id, self.plan, self.options = slot_id, plan, options  # the plan of the installed view
        self._declared = plan
        self.shell = EffectCollector(new_mirror)
        self.story = Story(plan)
        self.view = View(ViewNumber(0), 0, "", (), ())
        self.completed = CheckpointId(0)
        self.hosted: dict[TaskId, HostedTask] = {}
        self.pressure, self.drift = Pressure(options, self.shell), SourceDrift(plan, options, self.shell)
        self.warm_ups = WarmUps(options, self.shell)
        threads = map(ThreadId, count(1))
        self.context = SlotContext(slot_id, plan, options, self.shell, self.pressure.budget, threads, self.mark_status)
        self.backups = Backups(self.context)
        self.status_is_due = False
        self.early_messages = EarlyMessages()
        self._awaited_pages: dict[ChannelId, CaptureElements] = {}  # that wait for a segment from the disk
        self.failed_writes: dict[str, tuple[Snapshot, Pieces | None]] = {}
        self._ticked_ns = 0
        self._gone: dict[SlotId, None] = {}  # whose connections broke

    def step(self, event: Event) -> list[Effect]:
        """Returns what the process shall do, in this order.

        A malformed message leads to ``RefuseMessage``. Any exception is a bug; the story is a note of it.
        """
        self.story.note(event)
        try:
            handler = HANDLERS.get(type(event))
            if handler is None:
                raise MACHINE.no_row(self, type(event), event)
            handler(self, event)
        except Exception as bug:
            bug.add_note(str(self.story))
            raise
        return self.shell.take()

    # ------------------------------------------------------------------ messages

    def on_message(self, event: MessageReceived) -> None:
        """Handles a message, or refuses it: MessageMalformed of a check, or because this sender may not send it."""
        sender, message = event.sender, event.message
        handlers = FROM_SLOTS if sender != COORDINATOR else FROM_COORDINATOR
        try:
            handler = handlers.get(type(message))
            if handler is None:
                raise MessageMalformed(sender_name(sender), f"it may not send {type(message).__name__} to a slot")
            if self._is_of_another_view(sender, message):
                return
            check_for_slot(self.plan_of(message), sender, message)
            handler(self, sender, message, event.payload)
            if self.status_is_due:
                self.send_status()
        except MessageMalformed as error:
            self.shell.refuse(error)

    def _is_of_another_view(self, sender: SlotId, message: Any) -> bool:
        """Returns whether a message is of a generation that has ended, or of a view on its way, so that its ids may be
        those of another plan. Of the latter it keeps what waits for the view."""
        if isinstance(message, ChannelHandshake | LogRequest) and self.early_messages.holds(
            sender, message, self.view.number
        ):
            return True
        if isinstance(message, Completed):
            return message.generation != self.view.generation
        name = LIVES.get(type(message))
        return name is not None and not self.view.generation <= getattr(message, name) <= self.view.number

    def plan_of(self, message: Message) -> Plan:
        """Returns the plan whose ids a message has: that of the installed view, or a view's own."""
        if not isinstance(message, View) or message.widths == self.view.widths:
            return self.plan
        widths = dict(message.widths)
        return self._declared.with_widths(widths) if self._declared.can_have(widths) else self.plan

    def send_to_coordinator(self, message: Message) -> None:
        """Sends to the coordinator."""
        self.shell.send(COORDINATOR, message)

    def life(self, task: TaskId, incarnation: int) -> HostedTask | None:
        """Returns the hosted task of this incarnation, if it lives here."""
        hosted = self.hosted.get(task)
        return hosted if hosted is not None and hosted.incarnation == incarnation else None

    def thread(self, task: TaskId, number: ThreadId) -> HostedTask | Shadow | None:
        """Returns the hosted task, or the shadow, whose thread has this number."""
        hosted = self.hosted.get(task)
        if hosted is not None and hosted.running.number == number:
            return hosted
        shadow = self.backups.shadows.get(task)
        return shadow if shadow is not None and shadow.thread == number else None

    def mark_status(self) -> None:
        """Sends the status soon, because something has changed that others wait for."""
        self.status_is_due = True

    def _on_batch(self, sender: SlotId, batch: Batch, payload: bytes | memoryview) -> None:
        channel = self.plan.channels[batch.channel]
        check_life(sender, channel.sender, batch.sender, self.view)
        if batch.kind is ElementKind.WATERMARK:
            check_watermark(sender, payload)
        receiver = channel.receiver
        assert receiver is not None, channel
        hosted = self.hosted.get(receiver)
        if hosted is not None:
            hosted.on_batch(batch, payload)

    def _on_position(self, sender: SlotId, position: Position, _payload: object) -> None:
        channel = self.plan.channels[position.channel]
        check_life(sender, channel.sender, position.sender, self.view)
        hosted = self.hosted.get(channel.receiving_task)
        if hosted is not None:
            hosted.inputs.on_position(position)

    def _on_handshake(self, sender: SlotId, handshake: ChannelHandshake, _payload: object) -> None:
        channel = self.plan.channels[handshake.channel]
        check_lengths(sender, handshake.lengths, self.plan)
        check_life(sender, channel.receiving_task, handshake.receiver, self.view)
        hosted = self.life(channel.sender, handshake.sender)
        if hosted is not None:
            hosted.on_handshake(handshake)

    def _on_log_request(self, sender: SlotId, request: LogRequest, _payload: object) -> None:
        """Answers at once, in every state, under the question's view or a later one with the same asker."""
        check_life(sender, request.task, request.incarnation, self.view)
        placement = self.view.placements[request.task]
        if placement.incarnation != request.incarnation or placement.slot is None:
            return
        replicas: tuple[Delta, ...] | None = None
        if request.is_keeper:
            if (keeper := self.backups.keepers.get(request.holder)) is not None:
                replicas = keeper.reply(request.task, self.plan)
        elif (holder := self.hosted.get(request.holder)) is not None:
            replicas = holder.logs_for(request.task)
        if replicas is not None:
            head = request.task, request.incarnation, request.view, request.holder, request.is_keeper
            self.shell.send(placement.slot, LogReply(*head, self.id, replicas))

    def _on_log_reply(self, sender: SlotId, reply: LogReply, _payload: object) -> None:
        check_itself(sender, reply.slot)
        hosted = self.life(reply.task, reply.incarnation)
        if hosted is not None:
            hosted.on_log_reply(reply)

    def _on_append_log(self, sender: SlotId, message: AppendLog, payload: object) -> None:
        self.backups.on_append_log(sender, message, payload)

    def _on_standby_update(self, sender: SlotId, update: StandbyUpdate, payload: bytes | memoryview) -> None:
        self.backups.on_standby_update(sender, update, payload)

    def _on_feed(self, sender: SlotId, message: FeedShadow, payload: bytes | memoryview) -> None:
        self.backups.on_feed(sender, message, payload)

    def _on_append_ack(self, sender: SlotId, message: AppendAck, _payload: object) -> None:
        check_itself(sender, message.slot)
        hosted = self.life(message.task, message.incarnation)
        if hosted is not None:
            hosted.output_gate.on_append_ack(message)
            if hosted.output_gate.may_hand_over:
                self.mark_status()

    def _on_feed_ack(self, sender: SlotId, message: FeedAck, _payload: object) -> None:
        check_itself(sender, message.slot)
        hosted = self.life(message.task, message.incarnation)
        if hosted is not None:
            hosted.shadow_feeds.on_feed_ack(message)

    def _on_trigger(self, _sender: SlotId, trigger: TriggerCheckpoint, _payload: object) -> None:
        hosted = self.life(trigger.task, trigger.incarnation)
        if hosted is not None:
            hosted.on_trigger(Triggered(trigger.checkpoint, trigger.then_pause, trigger.then_end))

    def _on_announce_ack(self, _sender: SlotId, announce_ack: AnnounceAck, _payload: object) -> None:
        hosted = self.life(announce_ack.task, announce_ack.incarnation)
        if hosted is not None and hosted.reports.on_acknowledged(announce_ack):
            self.shell.announce_ack(announce_ack.task, hosted.thread)

    def _on_capture(self, _sender: SlotId, asked: CaptureLog | CaptureElements, _payload: object) -> None:
        """Sends a page of what an epoch of a task here consists of; no answer before it is there."""
        hosted = self.life(asked.task, asked.incarnation)
        if hosted is None or hosted.recovery.is_recovering:
            return
        found = captured_log(hosted, asked) if isinstance(asked, CaptureLog) else captured_elements(hosted, asked)
        if found is not None:
            self.shell.send(COORDINATOR, *found)
        elif isinstance(asked, CaptureElements):
            self._awaited_pages[asked.channel] = asked

    def answer_page(self, channel: ChannelId) -> None:
        """Sends a page that waited for a segment, which may have come."""
        if (asked := self._awaited_pages.pop(channel, None)) is not None:
            self._on_capture(COORDINATOR, asked, b"")

    def _on_warm_up(self, _sender: SlotId, message: WarmUp, _payload: object) -> None:
        if message.generation == self.view.generation:
            self.warm_ups.ask(message)

    def _on_release(self, _sender: SlotId, release: Release, _payload: object) -> None:
        if release.slot == self.id:
            self.close()
            self.shell.end(release.reason)

    # ------------------------------------------------------------------ views

    def _on_view(self, sender: SlotId, view: View, _payload: object) -> None:
        """Installs a view: stops what it no longer has here, then starts what it has; slots may skip views."""
        if view.number <= self.view.number:
            if view.number < self.view.number:  # a new coordinator asks, or an old one does not know that it is old
                self.send_to_coordinator(self.view)
            return
        plan, before, self.view = self.plan_of(view), self.view, view
        self.status_is_due = True
        if plan is self.plan:
            journals = self.fence(view)
        else:
            journals = self._adopt(plan, before, view)
        self.backups.apply_view(view, self.hosted)
        begun = self._begin_tasks(view, journals)
        if view.generation != before.generation:
            self.warm_ups.drop()
        for hosted in list(self.hosted.values()):
            if hosted not in begun:
                hosted.apply_view(view)
                hosted.advance(hosted.recovery.gather_again(view))
                hosted.check_handshakes()
        for speaker, message in self.early_messages.take():
            with suppress(MessageMalformed):  # its connection has done nothing wrong since
                check_for_slot(self.plan, speaker, message)
                FROM_SLOTS[type(message)](self, speaker, message, b"")
                self.send_status_if_due()

    def _adopt(self, plan: Plan, before: View, view: View) -> dict[TaskId, Delta]:
        """Ends all that has ids of the plan of the view before; returns the journals that its sources leave.

        A source with a journal has the same name in the next plan.
        """
        journals = {}
        for task, hosted in self.hosted.items():
            successor = plan.task_named(self.plan.task_name(task))
            left = hosted.close(view, None if successor is None else view.placements[successor])
            if left is not None and successor is not None:
                journals[successor] = structs.replace(left, log=journal_of(successor))
        self.hosted.clear()
        self.failed_writes.clear()
        self.context = replace(self.context, plan=plan, log_offsets={})
        self.backups = self.backups.of_plan(self.context, before)
        self.plan, self.story, self.drift = plan, Story(plan), SourceDrift(plan, self.options, self.shell)
        return journals

    def fence(self, view: View) -> dict[TaskId, Delta]:
        """Ends incarnations that the view does not have here; returns the journals that they leave."""
        journals = {}
        for task, hosted in list(self.hosted.items()):
            placement = view.placements[task]
            if placement.incarnation != hosted.incarnation or placement.slot != self.id:
                del self.hosted[task]
                left = hosted.close(view, placement)
                if left is not None:
                    journals[task] = left
        return journals

    def _begin_tasks(self, view: View, journals: dict[TaskId, Delta]) -> list[HostedTask]:
        begun = []
        for placement in view.placements:
            task = placement.task
            if placement.slot == self.id and task not in self.hosted:
                is_paused, forget = self.pressure.pauses_sources, self.backups.forget_shadow
                hosted = HostedTask(self.context, view, placement, journals.get(task), is_paused, forget)
                self.hosted[task] = hosted
                begun.append(hosted)
        for hosted in begun:
            shadow = self.backups.shadows.get(hosted.task)
            if shadow is not None and not hosted.adopt_shadow(shadow):
                self.backups.drop_shadow(hosted.task)
            hosted.begin()
            if hosted.recovery.needs_state:
                self.restore(hosted)
        return begun

    def _on_completed(self, _sender: SlotId, completed: Completed, _payload: object) -> None:
        """Truncates logs up to a durable checkpoint and brings standbys up to it."""
        if completed.checkpoint <= self.completed or completed.generation != self.view.generation:
            return
        self.completed, self.status_is_due = completed.checkpoint, True
        self.context.log_offsets.update({log_of(task): offset_bytes for task, _, offset_bytes in completed.tasks})
        for hosted in self.hosted.values():
            hosted.on_completed(completed)
        self.backups.on_completed(completed)
        self.relieve_pressure()

    # ------------------------------------------------------------------ peers and time

    def on_peer_gone(self, event: PeerGone) -> None:
        """Reports the suspicion to the coordinator at once."""
        if any(address.slot == event.slot for address in self.view.slots):
            self._gone[event.slot] = None
            self.send_to_coordinator(Suspicion(self.id, event.slot, self.view.number, True))

    def on_peer_back(self, event: PeerBack) -> None:
        """Begins new sessions on the channels from this peer, because what was on its way is lost."""
        self._gone.pop(event.slot, None)
        for hosted in self.hosted.values():
            hosted.inputs.renew_from(event.slot)

    def on_heartbeat(self, event: HeartbeatDue) -> None:
        """Repeats what waits for an answer, once in ``heartbeat_ms``."""
        now_ns = event.now_ns
        self.shell.tick(now_ns)
        if now_ns - self._ticked_ns < self.options.heartbeat_ms * 1_000_000:
            return
        self._ticked_ns = now_ns
        self.tick_sources(now_ns)
        self.warm_ups.tick(now_ns)
        self.relieve_pressure()
        failed_writes, self.failed_writes = self.failed_writes, {}
        for name, unwritten in failed_writes.items():
            self.shell.write_snapshot(name, *unwritten)
        for hosted in self.hosted.values():
            hosted.tick()
        self.backups.tick()
        if self._gone:
            present = {address.slot for address in self.view.slots}
            for slot in [slot for slot in self._gone if slot in present]:
                self.send_to_coordinator(Suspicion(self.id, slot, self.view.number, True))
        self.send_status()

    def send_status_if_due(self) -> None:
        """Sends a status at once if something has changed that others wait for."""
        if self.status_is_due:
            self.send_status()

    def send_status(self) -> None:
        """Reports what is installed here, so that the coordinator repeats only what is missing."""
        self.status_is_due = False
        if not self.view.number:
            return
        is_over_soft_limit = self.pressure.is_over_soft_limit
        tasks = tuple([status_of(hosted, is_over_soft_limit) for hosted in self.hosted.values()])
        standbys, keepers, shadows = self.backups.status()
        head = self.id, self.view.number, self.completed, tasks
        body = standbys, keepers, is_over_soft_limit, shadows
        self.send_to_coordinator(SlotStatus(*head, *body, warmed=self.warm_ups.done))

    def validate(self) -> None:
        """Asserts what holds between two events: simulated worlds call it after each."""
        assert self.backups.completed == self.completed, (self.backups.completed, self.completed)
        for task, hosted in self.hosted.items():
            assert hosted.task == task and hosted.view.number <= self.view.number, (task, hosted.view.number)
            hosted.validate()
        self.backups.validate()
        warm_ups = self.warm_ups
        assert not warm_ups.asked or warm_ups.generation == self.view.generation, (warm_ups.generation, self.view)
        self.pressure.budget.validate()

    def close(self) -> None:
        """Ends everything here."""
        for hosted in self.hosted.values():
            hosted.close(self.view, self.view.placements[hosted.task])
        self.hosted.clear()
        self.backups.close()


HANDLERS: dict[type, Callable[[Slot, Any], None]] = {
    event.MessageReceived: Slot.on_message,
    event.StepEmitted: Slot.on_emission,
    event.LogEndReached: Slot.on_log_end,
    event.ElementsNeeded: Slot.on_needs,
    event.ReplicationAwaited: Slot.on_await_replicated,
    event.StepAnnounced: Slot.on_announce_step,
    event.ThreadRaised: Slot.on_raised,
    event.PartFailed: Slot.on_failed,
    event.JournalWanted: Slot.on_open_journal,
    event.JournalMissed: Slot.on_journal_lost,
    event.ProducerDataRead: Slot.on_journal,
    event.ProducerFailed: Slot.on_producer_failed,
    event.SinkOpened: Slot.on_external_opened,
    event.SinkWriterFenced: Slot.on_sink_fenced,
    event.SinkConfirmed: Slot.on_external_confirmed,
    event.SnapshotWritten: Slot.on_snapshot_written,
    event.WholeStateWritten: Slot.on_whole_written,
    event.SnapshotsRead: Slot.on_objects_read,
    event.WarmedUp: Slot.on_warmed_up,
    event.SegmentSpilled: Slot.on_spilled,
    event.SegmentLoaded: Slot.on_segment_loaded,
    event.PeerGone: Slot.on_peer_gone,
    event.PeerBack: Slot.on_peer_back,
    event.HeartbeatDue: Slot.on_heartbeat,
}

MACHINE: Machine[Slot, Event, None] = Machine("slot", {(Slot, kind): handle for kind, handle in HANDLERS.items()})

Handlers = dict[type, Callable[[Slot, SlotId, Any, Any], None]]

FROM_SLOTS: Handlers = {
    Batch: Slot._on_batch,
    Position: Slot._on_position,
    ChannelHandshake: Slot._on_handshake,
    LogRequest: Slot._on_log_request,
    LogReply: Slot._on_log_reply,
    AppendLog: Slot._on_append_log,
    AppendAck: Slot._on_append_ack,
    StandbyUpdate: Slot._on_standby_update,
    FeedShadow: Slot._on_feed,
    FeedAck: Slot._on_feed_ack,
}
"""What other slots may send."""

FROM_COORDINATOR: Handlers = {
    View: Slot._on_view,
    TriggerCheckpoint: Slot._on_trigger,
    Completed: Slot._on_completed,
    Release: Slot._on_release,
    AnnounceAck: Slot._on_announce_ack,
    Hold: Slot.on_hold,
    DriftLimit: Slot.on_drift_limit,
    CaptureLog: Slot._on_capture,
    CaptureElements: Slot._on_capture,
    WarmUp: Slot._on_warm_up,
}
"""What the coordinator may send."""


LIVES: dict[type, str] = {
    **dict.fromkeys((Batch, Position), "sender"),
    ChannelHandshake: "receiver",
    **dict.fromkeys((LogRequest, LogReply, AppendLog, AppendAck, StandbyUpdate), "incarnation"),
    **dict.fromkeys((FeedShadow, FeedAck, TriggerCheckpoint, AnnounceAck, CaptureLog, CaptureElements), "incarnation"),
}
"""Name of the field with the incarnation that a message is of."""

EARLY_MESSAGES_MAX = 10_000
"""Handshakes and log requests that are kept; more are dropped, and repeated by their senders."""


class EarlyMessages:
    """Messages of a view that is on its way, the latest of each sender on each subject: kept until the view is
    installed, so that no heartbeat is lost (protocol 6)."""

    def __init__(self) -> None:
        self._messages: dict[tuple[int, ...], tuple[SlotId, ChannelHandshake | LogRequest]] = {}

    def holds(self, sender: SlotId, message: ChannelHandshake | LogRequest, installed: ViewNumber) -> bool:
        """Keeps a message of a later view than the installed one. Returns False for any other message."""
        if message.view <= installed:
            return False
        key: tuple[int, ...] = (sender,)
        if isinstance(message, ChannelHandshake):
            key += (message.channel,)
        else:
            key += (message.task, message.holder, message.is_keeper)
        if key in self._messages or len(self._messages) < EARLY_MESSAGES_MAX:
            self._messages[key] = sender, message
        return True

    def take(self) -> list[tuple[SlotId, ChannelHandshake | LogRequest]]:
        """Returns all that is kept, in the order in which it came, and keeps nothing more."""
        taken = list(self._messages.values())
        self._messages.clear()
        return taken


def status_of(hosted: HostedTask, is_over_soft_limit: bool) -> TaskStatus:
    """Returns what the slot reports to the coordinator about a task at each heartbeat (protocol 5)."""
    is_live = isinstance(hosted.state, recovery_machine.Live)
    phase = recovery_machine.phase_of(hosted.state)
    if is_live and hosted.output_gate.may_hand_over:
        phase = TaskPhase.SUSPENDED
    elif is_live and hosted.is_final:
        phase = TaskPhase.FINAL
    logs = hosted.outputs.inflight_logs + hosted.output_gate.inflight_logs
    counters = (
        *(((TaskCounter.RECORDS_IN, hosted.running.records_in),) if hosted.running.records_in is not None else ()),
        (TaskCounter.RECORDS_OUT, hosted.running.records_out),
        *(((TaskCounter.LIMIT_REACHED, 1),) if hosted.running.has_reached_limit else ()),
        *(((TaskCounter.WATERMARK_NS, hosted.running.reached_ns),) if hosted.running.reached_ns is not None else ()),
        *(((TaskCounter.ROWS_WRITTEN, hosted.output_gate.confirmed_seq),) if hosted.output_gate.confirmed_seq else ()),
        *(((TaskCounter.REPLAYED_RECORDS, hosted.running.replayed),) if hosted.running.replayed else ()),
        (TaskCounter.DETERMINANT_BYTES, hosted.logs.end_bytes(hosted.own_log)),
        (TaskCounter.LOG_MEMORY_BYTES, hosted.logs.size_bytes),
        (TaskCounter.INFLIGHT_MEMORY_BYTES, sum([log.memory_bytes for log in logs])),
        (TaskCounter.INFLIGHT_DISK_BYTES, sum([log.disk_bytes for log in logs])),
        (TaskCounter.OVER_SOFT_LIMIT, int(is_over_soft_limit)),
    )
    return TaskStatus(hosted.task, hosted.incarnation, phase, (*_backlog(hosted), *counters))


def _backlog(hosted: HostedTask) -> tuple[tuple[TaskCounter, int], ...]:
    """Returns what waits in the task's inputs, if it is known."""
    if isinstance(hosted.state, recovery_machine.Recovering):
        return ()
    if hosted.output_gate.journal is not None:
        return ((TaskCounter.BACKLOG_BYTES, hosted.output_gate.journal.unread_bytes),)
    backlog = hosted.inputs.backlog
    return () if backlog is None else ((TaskCounter.BACKLOG_ELEMENTS, backlog),)

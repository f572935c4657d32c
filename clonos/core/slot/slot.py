"""The pure machine of a slot: installs views, hosts tasks, standbys and keepers, answers questions.

Events come in as ``on_*`` calls from one thread; it acts through its ``SlotShell`` only. Messages of dead incarnations
are dropped everywhere; those of a view that is not installed yet are dropped too, but for a few that are kept for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from clonos.core.checkpoint.snapshot import RestoredState, Snapshot
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, CheckpointId, SlotId, TaskId, ThreadId, ViewNumber, log_of
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.slot_shell import ReadPurpose, ShadowRead, SlotShell, StandbyRead, TaskRead
from clonos.core.ports.task_port import Triggered
from clonos.core.slot.backpressure import Pressure
from clonos.core.slot.backups import Backups
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.task_status import status_of
from clonos.core.slot.thread_events import LocalEvents
from clonos.core.standby.shadow import Shadow
from clonos.core.wire.admission import check_for_slot
from clonos.core.wire.authorization import check_itself, check_lengths, check_life, sender_name
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import Completed, Hold, Release, SlotStatus, Suspicion, Trigger, View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import AnnounceAck, LogReply, LogRequest
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow

EARLY_MESSAGES_MAX = 10_000
"""Statements and questions of a view that is on its way: kept so that no heartbeat is lost waiting for them."""


class Slot(LocalEvents, Backups):
    """One process of the job."""

    def __init__(self, slot_id: SlotId, plan: Plan, options: Options, shell: SlotShell) -> None:
        super().__init__()
        self.id, self.plan, self.options, self.shell = slot_id, plan, options, shell
        self.view = View(ViewNumber(0), 0, "", (), ())
        self.completed = CheckpointId(0)
        self.hosted: dict[TaskId, HostedTask] = {}
        self.journals: dict[TaskId, Delta] = {}  # left by an incarnation for its successor here
        self.pressure = Pressure(self)
        self.status_is_due = False
        self._threads_numbered = 0
        self.early_messages: dict[tuple[int, ...], tuple[SlotId, Message]] = {}
        self.failed_writes: dict[str, tuple[Snapshot, Pieces | None]] = {}
        self._ticked_ns = 0
        self._gone: dict[SlotId, None] = {}
        self._handlers_of_slots: dict[type, Callable[[SlotId, Any, Any], None]] = {
            Batch: self._on_batch,
            Position: self._on_position,
            ChannelHandshake: self._on_handshake,
            LogRequest: self._on_log_request,
            LogReply: self._on_log_reply,
            AppendLog: self._on_keep,
            AppendAck: self._on_kept,
            StandbyUpdate: self._on_standby_update,
            FeedShadow: self._on_feed,
            FeedAck: self._on_feed_ack,
        }
        self._handlers_of_coordinator: dict[type, Callable[[SlotId, Any, Any], None]] = {
            View: self._on_view,
            Trigger: self._on_trigger,
            Completed: self._on_completed,
            Release: self._on_release,
            AnnounceAck: self._on_noted,
            Hold: lambda *_: self.pressure.hold(),
        }

    # ------------------------------------------------------------------ messages

    def on_message(self, sender: SlotId, message: Message, payload: bytes | memoryview = b"") -> None:
        """Takes a message.

        Raises: MessageMalformed, if this sender may not send it, or if it names what there is not.
        """
        handlers = self._handlers_of_slots if sender != COORDINATOR else self._handlers_of_coordinator
        handler = handlers.get(type(message))
        if handler is None:
            raise MessageMalformed(sender_name(sender), f"it may not send {type(message).__name__} to a slot")
        check_for_slot(self.plan, sender, message)
        handler(sender, message, payload)
        if self.status_is_due:
            self.send_status()

    def send_to_coordinator(self, message: Message) -> None:
        """Sends to the coordinator."""
        self.shell.send(COORDINATOR, message)

    def life(self, task: TaskId, incarnation: int) -> HostedTask | None:
        """This incarnation, if it lives here."""
        hosted = self.hosted.get(task)
        return hosted if hosted is not None and hosted.incarnation == incarnation else None

    def thread(self, task: TaskId, number: ThreadId) -> HostedTask | Shadow | None:
        """Whose thread has this number."""
        for life in (self.hosted.get(task), self.shadows.get(task)):
            if life is not None and life.thread == number:
                return life
        return None

    def number_thread(self) -> ThreadId:
        """A number that no thread of a task here has had."""
        self._threads_numbered += 1
        return ThreadId(self._threads_numbered)

    def _on_batch(self, sender: SlotId, batch: Batch, payload: bytes | memoryview) -> None:
        channel = self.plan.channels[batch.channel]
        check_life(sender, channel.sender, batch.sender, self.view)
        if not batch.is_well_formed:
            what = f"a batch of {batch.count} elements of kind {batch.kind.name} with checkpoint {batch.checkpoint}"
            raise MessageMalformed(sender_name(sender), what)
        hosted = self.hosted.get(channel.receiving_task)
        if hosted is not None:
            hosted.inputs.on_batch(batch, payload)

    def _on_position(self, sender: SlotId, position: Position, _payload: object) -> None:
        channel = self.plan.channels[position.channel]
        check_life(sender, channel.sender, position.sender, self.view)
        hosted = self.hosted.get(channel.receiving_task)
        if hosted is not None:
            hosted.inputs.on_position(position)

    def _is_early(self, sender: SlotId, message: ChannelHandshake | LogRequest) -> bool:
        """Keeps what is said under a later view, of each sender the latest on a subject."""
        if message.view <= self.view.number:
            return False
        key: tuple[int, ...] = (sender,)
        if isinstance(message, ChannelHandshake):
            key += (message.channel,)
        else:
            key += (message.task, message.holder, message.is_keeper)
        if key in self.early_messages or len(self.early_messages) < EARLY_MESSAGES_MAX:
            self.early_messages[key] = sender, message
        return True

    def _on_handshake(self, sender: SlotId, statement: ChannelHandshake, _payload: object) -> None:
        channel = self.plan.channels[statement.channel]
        check_lengths(sender, statement.lengths, self.plan)
        if self._is_early(sender, statement):
            return
        check_life(sender, channel.receiving_task, statement.receiver, self.view)
        hosted = self.life(channel.sender, statement.sender)
        if hosted is not None:
            hosted.on_handshake(statement)

    def _on_log_request(self, sender: SlotId, question: LogRequest, _payload: object) -> None:
        """Answered at once, in every state, under the question's view or a later one with the same asker."""
        if self._is_early(sender, question):
            return
        check_life(sender, question.task, question.incarnation, self.view)
        placement = self.view.placements[question.task]
        if placement.incarnation != question.incarnation or placement.slot is None:
            return
        replicas: tuple[Delta, ...] | None = None
        if question.is_keeper:
            keeper = self.keepers.get(question.holder)
            if keeper is not None:
                replicas = keeper.answer(question.task, self.plan)
        else:
            holder = self.hosted.get(question.holder)
            if holder is not None:
                replicas = holder.question(question.task)
        if replicas is not None:
            answer = LogReply(
                question.task,
                question.incarnation,
                question.view,
                question.holder,
                question.is_keeper,
                self.id,
                replicas,
            )
            self.shell.send(placement.slot, answer)

    def _on_log_reply(self, sender: SlotId, answer: LogReply, _payload: object) -> None:
        check_itself(sender, answer.slot)
        hosted = self.life(answer.task, answer.incarnation)
        if hosted is not None:
            hosted.on_log_reply(answer)

    def _on_kept(self, sender: SlotId, message: AppendAck, _payload: object) -> None:
        check_itself(sender, message.slot)
        hosted = self.life(message.task, message.incarnation)
        if hosted is not None:
            hosted.effects.on_kept(message)

    def _on_feed_ack(self, sender: SlotId, message: FeedAck, _payload: object) -> None:
        check_itself(sender, message.slot)
        hosted = self.life(message.task, message.incarnation)
        if hosted is not None:
            hosted.shadow_feeds.on_feed_ack(message)

    def _on_trigger(self, _sender: SlotId, trigger: Trigger, _payload: object) -> None:
        hosted = self.life(trigger.task, trigger.incarnation)
        if hosted is not None:
            hosted.on_trigger(Triggered(trigger.checkpoint, trigger.then_pause))

    def _on_noted(self, _sender: SlotId, noted: AnnounceAck, _payload: object) -> None:
        hosted = self.life(noted.task, noted.incarnation)
        told = None if hosted is None else hosted.announced_step
        if (
            hosted is not None
            and told is not None
            and (told.channel, told.first_seq) == (noted.channel, noted.first_seq)
        ):
            hosted.announced_step = None
            self.shell.noted(noted.task, hosted.thread)

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
        installed, self.view = self.view, view
        self.status_is_due = True
        self.fence(view)
        self._install_keepers(view, installed)
        self._install_standbys(view)
        self._install_shadows(view, installed)
        begun = self._begin_tasks(view)
        for hosted in list(self.hosted.values()):
            if hosted not in begun:
                hosted.apply_view(view)
                hosted.gather_again(view)
                hosted.compare_again()
        early, self.early_messages = self.early_messages, {}
        for speaker, message in early.values():
            with suppress(MessageMalformed):  # its connection has done nothing wrong since
                self.on_message(speaker, message)

    def fence(self, view: View) -> None:
        """Incarnations that the view does not have here are over."""
        for task, hosted in list(self.hosted.items()):
            placement = view.placements[task]
            if placement.incarnation != hosted.incarnation or placement.slot != self.id:
                del self.hosted[task]
                hosted.close()

    def _begin_tasks(self, view: View) -> list[HostedTask]:
        begun = []
        for placement in view.placements:
            if placement.slot == self.id and placement.task not in self.hosted:
                hosted = HostedTask(self, placement)
                self.hosted[placement.task] = hosted
                begun.append(hosted)
        for hosted in begun:
            hosted.begin()
        return begun

    # ------------------------------------------------------------------ state

    def restore(self, hosted: HostedTask) -> None:
        """Brings the standby here to exactly the checkpoint that the view names, or fetches it from the store."""
        placement = hosted.placement
        standby = self.standbys.pop(hosted.task, None)
        if standby is not None:
            if not standby.is_at(placement.restore):
                standby.complete(placement.restore)
            if standby.is_at(placement.restore):
                hosted.restored(standby.applied, standby.mirror)
                return
        self.shell.read_objects(TaskRead(hosted.task, hosted.incarnation), placement.objects)

    def on_objects_read(self, purpose: ReadPurpose, restored: RestoredState | None, error: str) -> None:
        """Snapshots have come from the store; if they could not be read, they are asked for again."""
        match purpose:
            case ShadowRead(task, session):
                shadow = self.shadows.get(task)
                if shadow is not None:
                    shadow.on_objects_read(session, restored)
            case TaskRead(task, incarnation):
                hosted = self.life(task, incarnation)
                if hosted is None:
                    return
                if restored is None:
                    self.shell.read_objects(purpose, hosted.placement.objects)
                    return
                hosted.restored(*restored)
            case StandbyRead(task, incarnation):
                standby = self.standbys.get(task)
                if standby is None or standby.incarnation != incarnation or restored is None:
                    return  # read again when the next checkpoint completes
                if restored.snapshot.checkpoint > standby.checkpoint:
                    standby.adopt(restored)
        self.send_status_if_due()

    def _on_completed(self, _sender: SlotId, completed: Completed, _payload: object) -> None:
        """A checkpoint is durable: logs before it are truncated, standbys brought up to it."""
        if completed.checkpoint <= self.completed or completed.generation != self.view.generation:
            return
        self.completed = completed.checkpoint
        self.status_is_due = True
        for hosted in self.hosted.values():
            hosted.on_completed(completed)
        for keeper in self.keepers.values():
            for task, _, offset_bytes in completed.tasks:
                keeper.logs.truncate(log_of(task), offset_bytes)
        for standby in self.standbys.values():
            missing = standby.complete(completed.checkpoint)
            if missing:
                self.shell.read_objects(StandbyRead(standby.task, standby.incarnation), missing)
        for shadow in self.shadows.values():
            shadow.on_completed(completed)
        self.pressure.check()

    # ------------------------------------------------------------------ disk, peers and time

    def on_spilled(self, segment: int, stored_bytes: int, error: str) -> None:
        """A segment of an in-flight log is on disk, or could not be written."""
        self.pressure.on_spilled(segment, stored_bytes, error)
        self.send_status_if_due()

    def on_segment_loaded(self, segment: int, payloads: list[bytes] | None, error: str) -> None:
        """A segment has come from disk, or cannot be read."""
        self.pressure.on_segment_loaded(segment, payloads, error)

    def on_peer_gone(self, slot: SlotId) -> None:
        """A connection broke: the coordinator hears of it at once."""
        if any(address.slot == slot for address in self.view.slots):
            self._gone[slot] = None
            self.send_to_coordinator(Suspicion(self.id, slot, self.view.number, True))

    def on_peer_back(self, slot: SlotId) -> None:
        """A connection is there again: what was on its way is lost, so its channels begin new sessions."""
        self._gone.pop(slot, None)
        for hosted in self.hosted.values():
            hosted.inputs.renew_from(slot)

    def on_tick(self, now_ns: int) -> None:
        """The heartbeat, if it is time."""
        if now_ns - self._ticked_ns < self.options.heartbeat_ms * 1_000_000:
            return
        self._ticked_ns = now_ns
        self.pressure.tick(now_ns)
        failed_writes, self.failed_writes = self.failed_writes, {}
        for name, unwritten in failed_writes.items():
            self.shell.write_snapshot(name, *unwritten)
        for hosted in self.hosted.values():
            hosted.tick()
        for shadow in self.shadows.values():
            shadow.tick()
        for task, keeper in self.keepers.items():
            slot = self.view.placements[task].slot
            if keeper.is_ready and slot is not None:
                self.shell.send(slot, keeper.kept(self.id))
        if self._gone:
            present = {address.slot for address in self.view.slots}
            for slot in [slot for slot in self._gone if slot in present]:
                self.send_to_coordinator(Suspicion(self.id, slot, self.view.number, True))
        self.send_status()

    def send_status_if_due(self) -> None:
        """At once where something has changed that others wait for."""
        if self.status_is_due:
            self.send_status()

    def send_status(self) -> None:
        """What is installed here, so that the coordinator repeats only what is missing."""
        self.status_is_due = False
        if not self.view.number:
            return
        self.send_to_coordinator(
            SlotStatus(
                self.id,
                self.view.number,
                self.completed,
                tuple([status_of(hosted) for hosted in self.hosted.values()]),
                tuple([(task, standby.checkpoint) for task, standby in sorted(self.standbys.items())]),
                tuple([(task, k.incarnation) for task, k in sorted(self.keepers.items()) if k.is_ready]),
                self.pressure.is_over_soft_limit,
                tuple([task for task, shadow in sorted(self.shadows.items()) if shadow.is_following]),
            )
        )

    def close(self) -> None:
        """Ends everything here."""
        for hosted in self.hosted.values():
            hosted.close()
        for shadow in self.shadows.values():
            shadow.close()
        self.hosted.clear()
        self.shadows.clear()

"""Hot standby: a shadow of another slot's task that replays the task's log as it grows (protocol 6.10).

    Asking ──a session begins──▶ Waiting ──snapshot read──▶ following ──the view names this slot──▶ sealed
       ▲                            │                          │
       └────── anything missing ────┴──────────────────────────┘

A shadow is always in replay: it draws nothing, calls no external system, and what it makes stays here. Nothing depends
on it: anything unexpected ends it, and its standby takes over as every standby does.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clonos.core.channel.credit import cost_bytes
from clonos.core.channel.inflight_log import InflightLog
from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.checkpoint.snapshot import RestoredState
from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, ThreadId, log_of
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.slot_effects import ShadowRead
from clonos.core.ports.task_port import Activation, Delivered, ReplayExtended, TaskEmission, TaskHandle
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.standby.slot_context import SlotContext
from clonos.core.wire.control_messages import Completed, Placement, View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import TaskFailed
from clonos.core.wire.replication_messages import StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow

OBJECTS_REMEMBERED = 8
"""Number of snapshots whose objects are remembered for a session that has not begun here."""


class Shadow:
    """Shadow of one incarnation of a task, until that incarnation ends."""

    def __init__(
        self, context: SlotContext, view: View, placement: Placement, completed: CheckpointId, sessions: Iterator[int]
    ) -> None:
        self.context, self.plan, self.shell = context, context.plan, context.shell
        self.generation, self.job_id = view.generation, view.job_id
        self.task, self.incarnation = placement.task, placement.incarnation
        self.completed = completed  # the latest checkpoint that is known to be complete
        self._sessions = sessions
        self.own_log = log_of(self.task)
        self.leader = placement.slot
        self.is_refused = False  # the code has raised here, so the shadow ends until the next incarnation
        self.is_sealed = False  # its incarnation has ended, and this slot has the next one
        self._objects: dict[CheckpointId, tuple[str, ...]] = {}
        self._begin()

    def _begin(self) -> None:
        self.session = next(self._sessions)
        self.next_ordinal = 0
        self.base = CheckpointId(0)
        self.is_reading = False
        self.logs = CausalLogs(self.context.log_offsets)
        self.waiting: list[tuple[FeedShadow, bytes | memoryview]] = []  # elements, until there is a thread for them
        self.skipped_bytes = 0  # of what came and was not needed
        self.thread: ThreadId | None = None  # until it has a thread
        self.handle: TaskHandle | None = None
        #: Invariant: a thread has a number and a handle, or neither
        self.fed_bytes = 0  # end of the log that the thread has been given
        #: Invariant: fed_bytes <= end of the own log here
        self.receivers: dict[ChannelId, ChannelReceiver] = {}
        self.needed: dict[ChannelId, int] = {}
        self.worked_bytes = self.handled_bytes = self.records_in = 0
        self.reported_bytes = 0  # of what was worked off
        self.outputs: dict[ChannelId, InflightLog] = {}
        self.reached: dict[CheckpointId, Snapshot] = {}  # at each barrier since the last completed checkpoint
        self.more: dict[CheckpointId, Pieces] = {}  # further pieces of some of them

    # ------------------------------------------------------------------ the session

    def ask(self) -> None:
        """Asks for a session, or reports how far this one is; repeated at the heartbeat."""
        if not self.is_refused and not self.is_sealed and self.leader is not None:
            self.reported_bytes = self.worked_bytes
            worked_bytes = self.worked_bytes + self.skipped_bytes
            message = FeedAck(self.task, self.incarnation, self.context.slot, self.session, worked_bytes)
            self.shell.send(self.leader, message)

    def renew(self) -> None:
        """Begins anew at a later barrier, because something is missing."""
        self._end_thread()
        self._begin()
        self.ask()

    def on_feed(self, message: FeedShadow, payload: bytes | memoryview) -> None:
        """Takes in what the task has decided and received: whole and in order, or not at all."""
        if message.session != self.session or self.is_refused or self.is_sealed:
            return
        if message.ordinal != self.next_ordinal or any(map(self.logs.has_gap, message.deltas)):
            self.renew()
            return
        self.next_ordinal += 1
        self.base = message.base
        for delta in message.deltas:
            self.logs.receive(delta)
        if self.handle is None:
            if message.count:
                self.waiting.append((message, payload))
            self._read_when_stored()
            return
        self._feed_log()
        if message.count and self.handle is not None:
            self._feed(message, payload)

    def on_update(self, update: StandbyUpdate) -> None:
        """Notes where a snapshot of the task is stored."""
        if update.incarnation != self.incarnation or self.is_sealed:
            return
        self._objects[update.checkpoint] = update.objects
        for old in sorted(self._objects)[:-OBJECTS_REMEMBERED]:
            del self._objects[old]
        self._read_when_stored()

    def _read_when_stored(self) -> None:
        if self.base and self.handle is None and not self.is_reading and self.base in self._objects:
            self.is_reading = True
            self.shell.read_objects(ShadowRead(self.task, self.session), self._objects[self.base])

    def on_objects_read(self, session: int, restored: RestoredState | None) -> None:
        """Starts from the state at the barrier where the session began."""
        if session != self.session or not self.is_reading or self.is_sealed:
            return
        own = self.logs.replicas.get(self.own_log)
        if restored is None or own is None or own.start_bytes > restored.snapshot.log_offset_bytes:
            self.renew()
            return
        self._start(restored, bytes(own.data[restored.snapshot.log_offset_bytes - own.start_bytes :]))

    def _start(self, restored: RestoredState, log: bytes) -> None:
        (snapshot, mirror), context = restored, self.context
        window_bytes = context.options.credit_window_bytes
        starts, nexts = dict(snapshot.inputs), dict(snapshot.outputs)
        for channel in self.plan.inputs[self.task]:
            start = starts.get(channel.id, 0)
            self.receivers[channel.id] = ChannelReceiver(channel, start, start, window_bytes)
        for channel in self.plan.outputs[self.task]:
            self.outputs[channel.id] = InflightLog(channel.id, nexts.get(channel.id, 0), context.budget)
        self.reached[snapshot.checkpoint] = _without_state(snapshot)
        self.records_in = snapshot.records_in
        self.fed_bytes = snapshot.log_offset_bytes + len(log)
        self.thread = next(context.threads)
        activation = Activation(
            self.incarnation,
            snapshot,
            mirror,
            log,
            snapshot.log_offset_bytes,
            self.generation,
            False,
            self.job_id,
            is_shadow=True,
        )
        self.handle = self.shell.start_task(self.task, self.thread, activation)
        waiting, self.waiting = self.waiting, []
        for message, payload in waiting:
            if self.handle is not None:  # a gap ends it
                self._feed(message, payload)
        context.on_status_change()

    def _feed_log(self) -> None:
        own = self.logs.replicas[self.own_log]
        assert self.handle is not None, self.task
        if own.start_bytes > self.fed_bytes:
            self.renew()
        elif own.end_bytes > self.fed_bytes:
            self.handle.put(ReplayExtended(bytes(own.data[self.fed_bytes - own.start_bytes :])))
            self.fed_bytes = own.end_bytes

    def _feed(self, message: FeedShadow, payload: bytes | memoryview) -> None:
        receiver = self.receivers[message.channel]
        end = message.first_seq + message.count
        cost = cost_bytes(message.count, len(payload))
        if end <= receiver.next_seq:
            self.skipped_bytes += cost
            return
        skip = max(message.skip, receiver.next_seq - message.first_seq)
        assert self.handle is not None, self.task
        if message.first_seq + skip != receiver.next_seq:
            self.renew()
            return
        receiver.give(end, cost)
        self.handle.put(Delivered(message.channel, message.kind, message.count, skip, message.checkpoint, payload))

    # ------------------------------------------------------------------ what its thread tells

    def on_emission(self, emission: TaskEmission) -> None:
        """Keeps the output of a replayed step, because the shadow may become the task."""
        assert not emission.log, self.task
        for output in emission.outputs:
            self.outputs[output.channel].append(output.kind, output.count, output.checkpoint, output.payload)
        for channel, next_seq, freed_bytes in emission.consumed:
            self.receivers[channel].processed(next_seq, freed_bytes)
            self.worked_bytes += freed_bytes
        self.handled_bytes += emission.cost_bytes
        self.records_in = emission.records_in or self.records_in
        if emission.snapshot is not None:
            self.reached[emission.snapshot.checkpoint] = emission.snapshot
            if emission.more is not None:
                self.more[emission.snapshot.checkpoint] = emission.more
            self._truncate()
        if self.worked_bytes - self.reported_bytes >= self.context.options.credit_window_bytes:
            self.ask()

    def on_needs(self, channel: ChannelId, next_seq: int) -> None:
        """Notes which elements replay waits for; they come when the task receives them."""
        self.needed[channel] = next_seq

    def on_raised(self, failed: TaskFailed) -> None:
        """Ends the shadow for good, because a step that the task has completed raises here."""
        self.shell.warn(
            f"the hot standby of {self.plan.task_name(self.task)} has ended, and follows as a passive one now: what the"
            f" task did without an error raises {failed.error} when it is done again",
            task=self.task,
        )
        self.is_refused = True
        self._end_thread()
        self._begin()

    # ------------------------------------------------------------------ checkpoints

    def on_completed(self, completed: Completed) -> None:
        """Drops what lies before a completed checkpoint."""
        self.completed = completed.checkpoint
        self.logs.drop_completed()
        self._truncate()

    def _truncate(self) -> None:
        """Drops output and snapshots before the latest completed checkpoint whose barrier the shadow has passed."""
        over = [checkpoint for checkpoint in self.reached if checkpoint <= self.completed]
        if not over:
            return
        last = max(over)
        for checkpoint in over:
            if checkpoint in self.more:
                self.more.pop(checkpoint).release()  # or what was frozen for it would stay so
            if checkpoint != last:
                del self.reached[checkpoint]
        self.reached[last] = _without_state(self.reached[last])
        for channel, before_seq in self.reached[last].outputs:
            self.outputs[channel].truncate(before_seq)

    # ------------------------------------------------------------------ the end

    def tick(self) -> None:
        """Repeats at the heartbeat what it asks for; begins anew where the snapshot at its base is overdue."""
        is_late = self.base and self.handle is None and not self.is_reading
        if is_late and any(checkpoint > self.base for checkpoint in self._objects):
            self.renew()  # the snapshot at its base has never come
        else:
            self.ask()

    def seal(self, successor: Incarnation) -> None:
        """Takes nothing more in, because the next incarnation of the task lives in this slot."""
        self.incarnation, self.is_sealed = successor, True

    @property
    def is_following(self) -> bool:
        """Whether the shadow could become the task's next incarnation."""
        return self.handle is not None

    def stands_at(self, restore: CheckpointId) -> bool:
        """Whether it has passed the barrier that an incarnation restores from, and has all output after it."""
        snapshot = self.reached.get(restore)
        return self.handle is not None and snapshot is not None and not snapshot.final

    def held(self, own_offset_bytes: int) -> tuple[Delta, ...]:
        """Returns the task's log and those that the task holds, as far as they have come here, as a holder's answer."""
        deltas = self.logs.deltas((self.own_log, *self.plan.held[self.task]))
        return tuple(delta for delta in deltas if delta.log != self.own_log or delta.offset_bytes <= own_offset_bytes)

    def validate(self) -> None:
        """Asserts what holds between two events."""
        assert (self.thread is None) == (self.handle is None), (self.task, self.thread)
        assert self.handle is None or not self.is_refused, self.task
        assert self.handle is None or self.fed_bytes <= self.logs.end_bytes(self.own_log), (self.task, self.fed_bytes)
        self.logs.validate()
        for receiver in self.receivers.values():
            receiver.validate()
        for log in self.outputs.values():
            log.validate()

    def _end_thread(self) -> None:
        if self.thread is not None:
            self.shell.stop_task(self.task, self.thread)
            self.context.on_status_change()
        for log in self.outputs.values():
            log.close()
        self.outputs.clear()

    def close(self) -> None:
        """Ends the shadow."""
        self._end_thread()
        self.thread, self.handle = None, None


def _without_state(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(snapshot, changes=b"", position=b"")

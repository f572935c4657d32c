"""Mutants of channels: sessions, handshakes, received positions, credit, deltas, in-flight logs."""

from __future__ import annotations

from typing import Any

from clonos.core.channel.inflight_log import InflightLog
from clonos.core.channel.input_channels import InputChannels
from clonos.core.channel.output_channels import OutputChannels
from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.channel.sender import ChannelSender
from clonos.core.checkpoint.pending_snapshots import PendingSnapshots
from clonos.core.log.causal_log import NOTHING_COMPLETED, CausalLogs
from clonos.core.ports.slot_effects import SendMessage
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.log_delta import Delta
from clonos_chaos.project.mutants.mutation import Mutation, mutant


@mutant("3")
def deltas_one_message_late(mutation: Mutation) -> None:
    """The deltas of a message are those of its causes, not of the message before it."""
    late: dict[Any, Any] = {}

    def deltas(right: Any, self: ChannelSender, logs: CausalLogs) -> Any:
        mine = (self.session, right(self, logs))
        session, before = late.get(self, (0, ()))
        late[self] = mine
        return before if session == self.session else ()

    mutation.wrap(ChannelSender, "deltas", deltas)


@mutant("3")
def deltas_are_not_passed_on(mutation: Mutation) -> None:
    """A task forwards the deltas that it has received."""

    def grown(right: Any, self: HostedTask, task: Any) -> None:
        if task == self.task:
            right(self, task)

    mutation.wrap(HostedTask, "grown", grown)


@mutant("4")
def gaps_pass(mutation: Mutation) -> None:
    """A message is accepted whole or not at all: one with a gap, in elements or in a log, begins a new session."""
    mutation.swap(ChannelReceiver, "has_gap", lambda self, message, logs: False)


@mutant("4")
def gaps_in_elements_pass(mutation: Mutation) -> None:
    """A message with a gap in its elements is refused."""

    def has_gap(right: Any, self: ChannelReceiver, message: Any, logs: CausalLogs) -> bool:
        return any(logs.has_gap(delta) for delta in message.deltas)

    mutation.wrap(ChannelReceiver, "has_gap", has_gap)


@mutant("4")
def gaps_in_ordinals_pass(mutation: Mutation) -> None:
    """A message that does not follow the last one of its session is refused, even if only deltas are missing."""

    def has_gap(right: Any, self: ChannelReceiver, message: Any, logs: CausalLogs) -> bool:
        first = getattr(message, "first_seq", None)
        first = message.next_seq if first is None else first
        return first > self.next_seq or any(logs.has_gap(delta) for delta in message.deltas)

    mutation.wrap(ChannelReceiver, "has_gap", has_gap)


@mutant("4")
def known_elements_are_taken_again(mutation: Mutation) -> None:
    """Elements below next_seq are dropped; a batch is cut where its new elements begin."""

    def accept(right: Any, self: ChannelReceiver, batch: Any, payload_bytes: int) -> int | None:
        skip = right(self, batch, payload_bytes)
        return None if skip is None else max(0, skip - 1)

    mutation.wrap(ChannelReceiver, "accept", accept)


@mutant("4")
def receivers_do_not_report_what_they_have_taken(mutation: Mutation) -> None:
    """A replay repeats the last row that a receiver has taken."""
    mutation.swap(ChannelReceiver, "keep_last", lambda self, batch, payload: None)


@mutant("4")
def messages_of_earlier_sessions_count(mutation: Mutation) -> None:
    """Only messages of this session are accepted."""

    def accepts(self: InputChannels, message: Any) -> ChannelReceiver | None:
        receiver = self.receivers.get(message.channel)
        if receiver is None or message.receiver != self.incarnation or message.sender != receiver.sender:
            return None
        return receiver

    mutation.swap(InputChannels, "accepts", accepts)


@mutant("4")
def messages_of_dead_senders_count(mutation: Mutation) -> None:
    """Messages of an earlier incarnation of the sender are dropped."""

    def accepts(self: InputChannels, message: Any) -> ChannelReceiver | None:
        receiver = self.receivers.get(message.channel)
        if receiver is None or message.receiver != self.incarnation:
            return None
        return receiver

    mutation.swap(InputChannels, "accepts", accepts)


@mutant("4")
def handshake_does_not_reset_what_was_sent(mutation: Mutation) -> None:
    """A new session resets what counts as sent, elements and deltas, to the handshake."""

    def open_session(right: Any, self: ChannelSender, handshake: Any, logs: CausalLogs) -> None:
        cursor, shipped = self.cursor, dict(self.shipped)
        is_first = not self.session
        right(self, handshake, logs)
        if not is_first:
            self.cursor, self.shipped = max(cursor, self.cursor), shipped

    mutation.wrap(ChannelSender, "open", open_session)


@mutant("4")
def handshake_does_not_reset_deltas(mutation: Mutation) -> None:
    """A new session resets what deltas count as sent to the lengths of the handshake."""

    def open_session(right: Any, self: ChannelSender, handshake: Any, logs: CausalLogs) -> None:
        shipped = dict(self.shipped)
        is_new = handshake.session > self.session > 0
        right(self, handshake, logs)
        if is_new:
            self.shipped = {**self.shipped, **shipped}

    mutation.wrap(ChannelSender, "open", open_session)


@mutant("4, 6.8")
def no_received_position(mutation: Mutation) -> None:
    """A handshake carries the received position."""
    mutation.swap(ChannelReceiver, "received_up_to", property(lambda self: 0))


@mutant("4, 6.8")
def no_received_position_from_the_own_log(mutation: Mutation) -> None:
    """The received position covers the steps of the receiver's own log too."""
    mutation.swap(ChannelReceiver, "received_up_to", property(lambda self: self.next_seq))


@mutant("4")
def credit_is_never_renewed(mutation: Mutation) -> None:
    """Credit is renewed as the task consumes."""

    def grant(right: Any, self: ChannelReceiver) -> bool:
        return bool(right(self)) if not self.granted_bytes else False

    mutation.wrap(ChannelReceiver, "grant", grant)


@mutant("4")
def replay_keeps_to_the_credit_window(mutation: Mutation) -> None:
    """A replaying task grants credit until the input of its next STEP is there, whatever the window."""
    mutation.swap(InputChannels, "on_needs", lambda self, channel, next_seq: None)


@mutant("4")
def credit_outlives_the_session(mutation: Mutation) -> None:
    """Credit is counted from zero in each session."""

    def open_session(right: Any, self: ChannelSender, handshake: Any, logs: CausalLogs) -> None:
        sent_bytes = self.sent_bytes
        is_new = handshake.session > self.session > 0
        right(self, handshake, logs)
        if is_new:
            self.sent_bytes = sent_bytes

    mutation.wrap(ChannelSender, "open", open_session)


@mutant("4")
def no_positions_at_the_heartbeat(mutation: Mutation) -> None:
    """The sender repeats its position at the heartbeat, so that a lost tail is noticed."""
    mutation.wrap(OutputChannels, "tick", _without_message("Position"))


@mutant("4")
def no_repeated_handshakes(mutation: Mutation) -> None:
    """The receiver repeats its handshake at the heartbeat until a message comes."""
    mutation.wrap(InputChannels, "tick", _without_message("ChannelHandshake"))


def _without_message(word: str) -> Any:
    def tick(right: Any, self: InputChannels | OutputChannels) -> None:
        earlier = self.shell.take()
        right(self)
        asked = self.shell.take()
        is_lost = [isinstance(each, SendMessage) and type(each.message).__name__ == word for each in asked]
        self.shell.put_back([*earlier, *(each for each, lost in zip(asked, is_lost, strict=True) if not lost)])

    return tick


@mutant("5")
def inflight_logs_end_one_element_late(mutation: Mutation) -> None:
    """In-flight logs are truncated to the positions of a completed checkpoint."""
    mutation.wrap(InflightLog, "truncate", lambda right, self, before_seq: right(self, before_seq + 1))


@mutant("5")
def inflight_logs_go_with_the_snapshot(mutation: Mutation) -> None:
    """In-flight logs are truncated when a checkpoint completes, not when its snapshot is written."""

    def written(right: Any, self: HostedTask, name: str, encoded: bytes) -> None:
        right(self, name, encoded)
        for entry in self.pending.entries:
            for channel, before_seq in entry.snapshot.outputs:
                sender = self.outputs.senders.get(channel)
                if sender is not None and not entry.snapshot.final:
                    sender.log.truncate(before_seq)

    mutation.wrap(HostedTask, "on_snapshot_written", written)


@mutant("5")
def inflight_logs_are_never_truncated(mutation: Mutation) -> None:
    """In-flight logs are truncated when a checkpoint completes."""
    mutation.swap(InflightLog, "truncate", lambda self, before_seq: None)


@mutant("5")
def causal_logs_are_never_truncated(mutation: Mutation) -> None:
    """Causal logs are truncated when a checkpoint completes."""
    mutation.swap(CausalLogs, "truncate", lambda self, task, offset_bytes: None)


@mutant("3.1")
def late_copies_keep_what_is_completed(mutation: Mutation) -> None:
    """A copy of a log that begins in a slot begins at the last completed checkpoint that the slot knows."""

    def receive(right: Any, self: CausalLogs, delta: Delta) -> bool:
        known, self.completed = self.completed, NOTHING_COMPLETED
        try:
            return bool(right(self, delta))
        finally:
            self.completed = known

    mutation.wrap(CausalLogs, "receive", receive)


@mutant("5")
def snapshots_are_settled_one_checkpoint_early(mutation: Mutation) -> None:
    """A snapshot stays until its checkpoint is complete."""
    mutation.wrap(PendingSnapshots, "complete", lambda right, self, checkpoint: right(self, checkpoint + 1))


@mutant("5")
def whole_states_count_before_they_are_stored(mutation: Mutation) -> None:
    """A snapshot builds on a whole state only when that is durable."""

    def begin_whole(right: Any, self: PendingSnapshots, snapshot: Snapshot) -> tuple[str, Snapshot]:
        name, head = right(self, snapshot)
        self.whole_written(name)
        return name, head

    mutation.wrap(PendingSnapshots, "begin_whole", begin_whole)

"""Wrong rules of channels: sessions, statements, claims, credit, deltas, in-flight logs."""

from __future__ import annotations

from typing import Any

from clonos.core.channel.inflight_log import InflightLog
from clonos.core.channel.input_channels import InputChannels
from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.channel.sender import ChannelSender
from clonos.core.checkpoint.pending_snapshots import PendingSnapshots
from clonos.core.checkpoint.snapshot import Snapshot
from clonos.core.log.causal_log import CausalLogs
from clonos.core.ports.slot_effects import SendMessage
from clonos.core.slot.hosted_task import HostedTask
from clonos_chaos.mutants.mutation import Planting, mutant


@mutant("3")
def deltas_one_message_late(planting: Planting) -> None:
    """The deltas of a message are those of its causes, not of the message before it."""
    late: dict[Any, Any] = {}

    def deltas(right: Any, self: ChannelSender, logs: CausalLogs) -> Any:
        mine = (self.session, right(self, logs))
        session, before = late.get(self, (0, ()))
        late[self] = mine
        return before if session == self.session else ()

    planting.wrap(ChannelSender, "deltas", deltas)


@mutant("3")
def deltas_are_not_passed_on(planting: Planting) -> None:
    """Deltas travel on from a task that has got them."""

    def grown(right: Any, self: HostedTask, task: Any) -> None:
        if task == self.task:
            right(self, task)

    planting.wrap(HostedTask, "grown", grown)


@mutant("4")
def gaps_pass(planting: Planting) -> None:
    """A message is accepted whole or not at all: one with a gap, in elements or in a log, begins a new session."""
    planting.swap(ChannelReceiver, "has_gap", lambda self, message, logs: False)


@mutant("4")
def gaps_in_elements_pass(planting: Planting) -> None:
    """A message with a gap in its elements is refused."""

    def has_gap(right: Any, self: ChannelReceiver, message: Any, logs: CausalLogs) -> bool:
        return any(logs.has_gap(delta) for delta in message.deltas)

    planting.wrap(ChannelReceiver, "has_gap", has_gap)


@mutant("4")
def gaps_in_ordinals_pass(planting: Planting) -> None:
    """A message that does not follow the last one of its session is refused, be it only deltas that are missing."""

    def has_gap(right: Any, self: ChannelReceiver, message: Any, logs: CausalLogs) -> bool:
        first = getattr(message, "first_seq", None)
        first = message.next_seq if first is None else first
        return first > self.next_seq or any(logs.has_gap(delta) for delta in message.deltas)

    planting.wrap(ChannelReceiver, "has_gap", has_gap)


@mutant("4")
def known_elements_are_taken_again(planting: Planting) -> None:
    """Elements below next_seq are dropped, a batch is cut where it has new ones."""

    def accept(right: Any, self: ChannelReceiver, batch: Any, payload_bytes: int) -> int | None:
        skip = right(self, batch, payload_bytes)
        return None if skip is None else max(0, skip - 1)

    planting.wrap(ChannelReceiver, "accept", accept)


@mutant("4")
def messages_of_earlier_sessions_count(planting: Planting) -> None:
    """Only messages of this session are taken in."""

    def accepts(self: InputChannels, message: Any) -> ChannelReceiver | None:
        receiving = self.receivings.get(message.channel)
        if receiving is None or message.receiver != self.hosted.incarnation or message.sender != receiving.sender:
            return None
        return receiving

    planting.swap(InputChannels, "accepts", accepts)


@mutant("4")
def messages_of_dead_senders_count(planting: Planting) -> None:
    """Messages of an earlier incarnation of the sender are dropped."""

    def accepts(self: InputChannels, message: Any) -> ChannelReceiver | None:
        receiving = self.receivings.get(message.channel)
        if receiving is None or message.receiver != self.hosted.incarnation:
            return None
        return receiving

    planting.swap(InputChannels, "accepts", accepts)


@mutant("4")
def statement_does_not_reset_what_was_sent(planting: Planting) -> None:
    """A new session resets what counts as sent, elements and deltas, to the statement."""

    def open_session(right: Any, self: ChannelSender, statement: Any, logs: CausalLogs) -> None:
        cursor, shipped = self.cursor, dict(self.shipped)
        is_first = not self.session
        right(self, statement, logs)
        if not is_first:
            self.cursor, self.shipped = max(cursor, self.cursor), shipped

    planting.wrap(ChannelSender, "open", open_session)


@mutant("4")
def statement_does_not_reset_deltas(planting: Planting) -> None:
    """A new session resets what deltas count as sent to the lengths of the statement."""

    def open_session(right: Any, self: ChannelSender, statement: Any, logs: CausalLogs) -> None:
        shipped = dict(self.shipped)
        is_new = statement.session > self.session > 0
        right(self, statement, logs)
        if is_new:
            self.shipped = {**self.shipped, **shipped}

    planting.wrap(ChannelSender, "open", open_session)


@mutant("4, 6.8")
def no_claim(planting: Planting) -> None:
    """A statement bears the claim."""
    planting.swap(ChannelReceiver, "claim", property(lambda self: 0))


@mutant("4, 6.8")
def no_claim_from_the_own_log(planting: Planting) -> None:
    """The claim covers the steps of the receiver's own log too."""
    planting.swap(ChannelReceiver, "claim", property(lambda self: self.next_seq))


@mutant("4")
def credit_is_never_renewed(planting: Planting) -> None:
    """Credit is granted anew as the task consumes."""

    def grant(right: Any, self: ChannelReceiver) -> bool:
        return bool(right(self)) if not self.granted_bytes else False

    planting.wrap(ChannelReceiver, "grant", grant)


@mutant("4")
def replay_keeps_to_the_credit_window(planting: Planting) -> None:
    """A replaying task grants until what its next STEP needs is there, whatever the window."""
    planting.swap(InputChannels, "on_needs", lambda self, channel, next_seq: None)


@mutant("4")
def credit_outlives_the_session(planting: Planting) -> None:
    """Credit is counted anew in each session."""

    def open_session(right: Any, self: ChannelSender, statement: Any, logs: CausalLogs) -> None:
        sent_bytes = self.sent_bytes
        is_new = statement.session > self.session > 0
        right(self, statement, logs)
        if is_new:
            self.sent_bytes = sent_bytes

    planting.wrap(ChannelSender, "open", open_session)


@mutant("4")
def no_positions_at_the_heartbeat(planting: Planting) -> None:
    """The sender repeats its position at the heartbeat, so that a lost tail is noticed."""
    planting.wrap(HostedTask, "tick", _without_sending("Position"))


@mutant("4")
def no_repeated_statements(planting: Planting) -> None:
    """The receiver repeats its statement at the heartbeat until something comes."""
    planting.wrap(HostedTask, "tick", _without_sending("ChannelHandshake"))


def _without_sending(word: str) -> Any:
    def tick(right: Any, self: HostedTask) -> None:
        earlier = self.shell.take()
        right(self)
        asked = self.shell.take()
        is_lost = [isinstance(each, SendMessage) and type(each.message).__name__ == word for each in asked]
        self.shell.put_back([*earlier, *(each for each, lost in zip(asked, is_lost, strict=True) if not lost)])

    return tick


@mutant("5")
def inflight_logs_end_one_element_late(planting: Planting) -> None:
    """In-flight logs are truncated to the positions of a completed checkpoint."""
    planting.wrap(InflightLog, "truncate", lambda right, self, before_seq: right(self, before_seq + 1))


@mutant("5")
def inflight_logs_go_with_the_snapshot(planting: Planting) -> None:
    """In-flight logs are truncated when a checkpoint completes, not when its snapshot is written."""

    def written(right: Any, self: HostedTask, name: str, encoded: bytes) -> None:
        right(self, name, encoded)
        for entry in self.pending.unsettled:
            for channel, before_seq in entry.snapshot.outputs:
                sending = self.sendings.get(channel)
                if sending is not None and not entry.snapshot.final:
                    sending.log.truncate(before_seq)

    planting.wrap(HostedTask, "on_snapshot_written", written)


@mutant("5")
def inflight_logs_are_never_truncated(planting: Planting) -> None:
    """In-flight logs are truncated when a checkpoint completes."""
    planting.swap(InflightLog, "truncate", lambda self, before_seq: None)


@mutant("5")
def causal_logs_are_never_truncated(planting: Planting) -> None:
    """Causal logs are truncated when a checkpoint completes."""
    planting.swap(CausalLogs, "truncate", lambda self, task, offset_bytes: None)


@mutant("5")
def snapshots_are_settled_one_checkpoint_early(planting: Planting) -> None:
    """A snapshot stays until its checkpoint is complete."""
    planting.wrap(PendingSnapshots, "complete", lambda right, self, checkpoint: right(self, checkpoint + 1))


@mutant("5")
def whole_states_count_before_they_are_stored(planting: Planting) -> None:
    """Snapshots build on all of a state behind which they come only when that is durable."""

    def begin_whole(right: Any, self: PendingSnapshots, snapshot: Snapshot) -> tuple[str, Snapshot]:
        name, head = right(self, snapshot)
        self.whole_written(name)
        return name, head

    planting.wrap(PendingSnapshots, "begin_whole", begin_whole)

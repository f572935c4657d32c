"""Receiving ends of all input channels of one incarnation: what they accept and their handshakes (protocol 4)."""

from __future__ import annotations

from collections.abc import Callable

from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.channel.sender import HANDSHAKE_TICKS_MAX
from clonos.core.log.causal_log import CausalLogs, Replica
from clonos.core.log.determinants import elements_covered
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.ids import ChannelId, Incarnation, LogId, SlotId, log_of
from clonos.core.model.options import Options
from clonos.core.model.plan import Channel
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.channel_messages import Batch, Position
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Length


class InputChannels:
    """Receivers of one incarnation, by channel."""

    def __init__(
        self,
        incarnation: Incarnation,
        logs: CausalLogs,
        coverage: Coverage | None,
        options: Options,
        shell: EffectCollector,
        on_growth: Callable[[LogId], None],
    ) -> None:
        self.incarnation, self.logs, self.coverage = incarnation, logs, coverage
        self.options, self.shell = options, shell
        self.view: View | None = None  # until the channels are open
        self.receivers: dict[ChannelId, ChannelReceiver] = {}
        self._on_growth = on_growth

    def open(self, channels: tuple[Channel, ...], snapshot: Snapshot | None, own: Replica) -> None:
        """Opens each channel where the snapshot ends. The high-water mark is after the elements that the own log has
        steps for, because those have been received."""
        starts = dict(snapshot.inputs) if snapshot else {}
        covered = elements_covered(bytes(own.data), len(channels))
        window_bytes_max = self.options.credit_window_bytes
        for channel, count in zip(channels, covered, strict=True):
            start = starts.get(channel.id, 0)
            self.receivers[channel.id] = ChannelReceiver(channel, start, start + count, window_bytes_max)

    def apply_view(self, view: View) -> None:
        """Begins a new session with each sender of which the view names another incarnation."""
        self.view = view
        for receiver in self.receivers.values():
            if receiver.apply_view(view.placements[receiver.channel.sender].incarnation):
                self.renew(receiver)

    def renew_from(self, slot: SlotId) -> None:
        """Begins new sessions with the senders in a slot that is connected again: what was on its way is lost."""
        for receiver in self.receivers.values():
            if self._slot_of(receiver) == slot:
                self.renew(receiver)

    def renew(self, receiver: ChannelReceiver) -> None:
        """Opens a new session with a handshake: where to resume, the high-water mark, the lengths of replicas."""
        receiver.renew()
        self.send_handshake(receiver)

    def send_handshake(self, receiver: ChannelReceiver) -> None:
        """Sends the handshake as it is now."""
        slot = self._slot_of(receiver)
        if slot is not None:
            assert self.view is not None
            lengths = () if receiver.is_confirmed else self._lengths(receiver)
            self.shell.send(slot, receiver.handshake(self.view.number, self.incarnation, lengths))

    def _slot_of(self, receiver: ChannelReceiver) -> SlotId | None:
        assert self.view is not None, receiver.channel
        return self.view.placements[receiver.channel.sender].slot

    def _lengths(self, receiver: ChannelReceiver) -> tuple[Length, ...]:
        """Returns the length of every replica; with ``replicas=f`` only of the sender's own log."""
        logs, log = self.logs, log_of(receiver.channel.sender)
        if self.coverage is None:
            return logs.lengths()
        return (Length(log, logs.end_bytes(log)),) if log in logs.replicas else ()

    def accepts(self, message: Batch | Position) -> ChannelReceiver | None:
        """Returns the receiver of a message to this incarnation, from the sender and in the session that it expects."""
        receiver = self.receivers.get(message.channel)
        if receiver is None or message.receiver != self.incarnation:
            return None
        if message.sender != receiver.sender or message.session != receiver.session:
            return None
        return receiver

    def take_in(self, batch: Batch) -> ChannelReceiver | None:
        """Takes in the log entries of a batch; returns the receiver that may accept its elements, if it may."""
        receiver = self.accepts(batch)
        if receiver is None:
            return None
        receiver.note_traffic()
        return receiver if self._accept_whole(receiver, batch) else None

    def on_position(self, message: Position) -> None:
        """Takes in the sender's heartbeat."""
        receiver = self.accepts(message)
        if receiver is not None and self._accept_whole(receiver, message):
            receiver.note_produced(message.produced_seq)

    def _accept_whole(self, receiver: ChannelReceiver, message: Batch | Position) -> bool:
        """Accepts a message whole or not at all: a gap, in elements or in a log, begins a new session."""
        if receiver.has_gap(message, self.logs):
            receiver.note_gap()
            self.renew(receiver)
            return False
        receiver.confirm(message)
        for delta in message.deltas:  # before anything of the message is processed; what is new travels on from here
            if not self.logs.receive(delta):
                continue
            if self.coverage is not None:
                self.coverage.came(delta.log, self._slot_of(receiver), self.logs.end_bytes(delta.log))
                if delta.log not in self.coverage.uncovered:
                    continue
            self._on_growth(delta.log)
        return True

    def on_needs(self, channel: ChannelId, next_seq: int) -> None:
        """Grants credit until the elements are there that replay waits for, whatever the window."""
        receiver = self.receivers[channel]
        receiver.need(next_seq)
        self.grant(receiver)

    def processed(self, channel: ChannelId, next_seq: int, freed_bytes: int) -> None:
        """Takes over that the task has processed all elements below ``next_seq``."""
        receiver = self.receivers[channel]
        receiver.processed(next_seq, freed_bytes)
        if receiver.grant():
            self.send_handshake(receiver)

    def grant(self, receiver: ChannelReceiver) -> None:
        """Sends a handshake where the credit has grown enough."""
        if receiver.grant():
            self.send_handshake(receiver)

    @property
    def received(self) -> dict[ChannelId, int]:
        """Number of the next element to be received, by channel."""
        return {channel: receiver.next_seq for channel, receiver in self.receivers.items()}

    @property
    def backlog(self) -> int | None:
        """Elements that wait in all inputs; None while some sender has not sent how much it has produced."""
        total = 0
        for receiver in self.receivers.values():
            backlog = receiver.backlog
            if backlog is None:
                return None
            total += backlog
        return total

    def take_over(self, receivers: dict[ChannelId, ChannelReceiver], needed: dict[ChannelId, int]) -> None:
        """Continues after what the receivers of a shadow were given; ``needed``: what its replay waits for."""
        for channel, receiver in self.receivers.items():
            receiver.take_over(receivers[channel], needed.get(channel, 0))

    def validate(self) -> None:
        """Asserts what holds between two events."""
        for receiver in self.receivers.values():
            receiver.validate()

    def take_stuck(self) -> tuple[Channel, str] | None:
        """Returns a channel in which each session begins with a gap, and why that is no progress, at the heartbeat."""
        found = None
        for receiver in self.receivers.values():
            if receiver.take_gap_ticks() >= HANDSHAKE_TICKS_MAX:
                found = receiver.channel, f"it asks for element {receiver.next_seq}, and gets others or other causes"
        return found

    def tick(self) -> None:
        """Repeats the handshake to each sender that has been quiet since the last heartbeat."""
        for receiver in self.receivers.values():
            receiver.adapt(self.options.heartbeat_ms, self.options.channel_delay_ms)
            if receiver.take_quiet():
                self.send_handshake(receiver)

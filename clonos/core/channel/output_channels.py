"""Sending ends of all output channels of one incarnation (protocol 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from clonos.core.channel.inflight_log import InflightLog
from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.channel.sender import Behind, ChannelSender, compare_positions
from clonos.core.log.causal_log import CausalLogs
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.ids import ChannelId, Incarnation, LogId
from clonos.core.model.plan import Channel
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.wire.channel_messages import ChannelHandshake
from clonos.core.wire.control_messages import View


class OutputChannels:
    """Senders of one incarnation, by channel; the channel to an external system is the output gate's."""

    def __init__(
        self, incarnation: Incarnation, logs: CausalLogs, coverage: Coverage | None, shell: EffectCollector
    ) -> None:
        self.incarnation, self.logs, self.coverage, self.shell = incarnation, logs, coverage, shell
        self.view: View | None = None  # until the channels are open
        self.senders: dict[ChannelId, ChannelSender] = {}
        self._sharers: dict[LogId, list[ChannelSender]] = {}
        self._early: dict[ChannelId, ChannelHandshake] = {}  # that came before the channels were open

    def add(self, channel: Channel, log: InflightLog, shared: tuple[LogId, ...]) -> None:
        """Opens a channel on which the logs ``shared`` travel, or those that are not covered."""
        sender = self.senders[channel.id] = ChannelSender(channel, log, shared, self.coverage)
        for shared_log in shared:
            self._sharers.setdefault(shared_log, []).append(sender)

    def apply_view(self, view: View) -> None:
        """Takes over which incarnation receives on each channel, and in which slot."""
        self.view = view
        for sender in self.senders.values():
            sender.apply_view(view.placements[sender.receiving_task].incarnation)

    @property
    def lacks_handshake(self) -> bool:
        """Whether some receiver has never sent a handshake."""
        return any(sender.received_up_to is None for sender in self.senders.values())

    @property
    def budget_bytes(self) -> int:
        """Bytes that the task may produce before the credit of some live session is used up."""
        least_bytes = UNLIMITED
        for sender in self.senders.values():
            if sender.session and (budget_bytes := sender.budget_bytes) < least_bytes:
                least_bytes = budget_bytes
        return least_bytes

    @property
    def inflight_logs(self) -> list[InflightLog]:
        """In-flight logs of all channels."""
        return [sender.log for sender in self.senders.values()]

    def grown(self, log: LogId) -> None:
        """Marks a log that has grown: it travels with what is sent next."""
        for sender in self._sharers.get(log, ()):
            sender.dirty[log] = None

    def receive(self, handshake: ChannelHandshake) -> ChannelSender | None:
        """Returns the sender that a handshake is for; keeps what comes before the channels are open."""
        sender = self.senders.get(handshake.channel)
        if sender is None:
            self._early[handshake.channel] = handshake
            return None
        is_current = handshake.sender == self.incarnation and handshake.receiver == sender.receiver
        return sender if is_current else None

    def take_early(self) -> tuple[ChannelHandshake, ...]:
        """Returns the handshakes that were kept."""
        early, self._early = self._early, {}
        return tuple(early.values())

    def open_session(self, sender: ChannelSender, handshake: ChannelHandshake) -> bool:
        """Resumes where the receiver asks; returns whether it had no session before.

        Raises: MessageMalformed, if the receiver asks for elements that completed checkpoints have.
        """
        was_missing = sender.received_up_to is None or not sender.session
        sender.open(handshake, self.logs)
        self.pump(sender)
        return was_missing

    def pump(self, sender: ChannelSender) -> None:
        """Sends what credit allows."""
        assert self.view is not None, sender.channel
        slot = self.view.placements[sender.receiving_task].slot
        if slot is not None:
            sender.pump(self.logs, self.incarnation, partial(self.shell.send, slot))

    def compare(
        self, positions: dict[ChannelId, int], external_seq: int | None, own_end_bytes: int, found_bytes: int
    ) -> tuple[Behind | None, bool]:
        """Compares the end of the log with what receivers have (``compare_positions``), and with its furthest copy."""
        behind, is_awaiting = compare_positions(positions, self.senders, external_seq, own_end_bytes)
        if found_bytes > own_end_bytes and behind is None:
            behind = Behind(None, own_end_bytes, found_bytes)
        return behind, is_awaiting

    def take_divergence(self) -> tuple[Channel, int] | None:
        """Returns a channel, and the number of a row in it that the replay has not repeated (``ChannelSender``)."""
        found = None
        for sender in self.senders.values():
            if (seq := sender.take_divergence()) is not None:
                found = sender.channel, seq
        return found

    def truncate(self, positions: Iterable[tuple[ChannelId, int]]) -> None:
        """Truncates in-flight logs up to the output positions of a completed checkpoint."""
        for channel, before_seq in positions:
            sender = self.senders.get(channel)
            if sender is not None:
                sender.log.truncate(before_seq)

    def take_stuck(self) -> tuple[Channel, str] | None:
        """Returns a channel whose receiver asks again and again for what the log does not have, at the heartbeat."""
        found = None
        for sender in self.senders.values():
            if reason := sender.take_stuck():
                found = sender.channel, reason
        return found

    def tick(self) -> None:
        """Repeats the position of each session at the heartbeat, so that the receiver notices a lost tail."""
        for sender in self.senders.values():
            if sender.session:
                assert self.view is not None, sender.channel
                slot = self.view.placements[sender.receiving_task].slot
                if slot is not None:
                    self.shell.send(slot, sender.position(self.logs, self.incarnation))

    def validate(self) -> None:
        """Asserts what holds between two events."""
        for sender in self.senders.values():
            sender.validate(self.logs)

    def close(self) -> None:
        """Gives memory and disk back, because the incarnation has ended here."""
        for sender in self.senders.values():
            sender.log.close()

"""Receiving ends of all input channels of one incarnation: what they accept and what handshakes state (protocol 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.log.causal_log import CausalLogs, Replica
from clonos.core.log.determinants import claims_of
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.ids import ChannelId, Incarnation, LogId, SlotId, log_of
from clonos.core.model.options import Options
from clonos.core.model.plan import Channel
from clonos.core.ports.slot_shell import SlotShell
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.channel_messages import Batch, Position
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta, Length


class InputChannels:
    """Receivers of one incarnation, by channel."""

    def __init__(
        self,
        incarnation: Incarnation,
        logs: CausalLogs,
        coverage: Coverage | None,
        options: Options,
        shell: SlotShell,
        on_growth: Callable[[LogId], None],
    ) -> None:
        self.incarnation, self.logs, self.coverage = incarnation, logs, coverage
        self.options, self.shell = options, shell
        self.view: View | None = None  # until the channels are open
        self.receivings: dict[ChannelId, ChannelReceiver] = {}
        self._on_growth = on_growth

    def open(self, channels: tuple[Channel, ...], snapshot: Snapshot | None, own: Replica) -> None:
        """Opens each channel where the snapshot ends, with a claim behind the elements that the own log has steps for:
        those have been received."""
        starts = dict(snapshot.inputs) if snapshot else {}
        covered = claims_of(bytes(own.data), len(channels))
        window_bytes_max = self.options.credit_window_bytes
        for channel, count in zip(channels, covered, strict=True):
            start = starts.get(channel.id, 0)
            self.receivings[channel.id] = ChannelReceiver(channel, start, start + count, window_bytes_max)

    def apply_view(self, view: View) -> None:
        """Begins a new session with each sender of which the view names another incarnation."""
        self.view = view
        for receiving in self.receivings.values():
            if receiving.apply_view(view.placements[receiving.channel.sender].incarnation):
                self.renew(receiving)

    def renew_from(self, slot: SlotId) -> None:
        """Begins new sessions with the senders in a slot that is connected again: what was on its way is lost."""
        for receiving in self.receivings.values():
            if self._slot_of(receiving) == slot:
                self.renew(receiving)

    def renew(self, receiving: ChannelReceiver) -> None:
        """Opens a new session, whose handshake states where to resume, the claim, and the lengths of replicas."""
        receiving.renew()
        self.state_to(receiving)

    def state_to(self, receiving: ChannelReceiver) -> None:
        """Sends the handshake as it is now."""
        slot = self._slot_of(receiving)
        if slot is not None:
            assert self.view is not None
            lengths = () if receiving.is_confirmed else self._lengths(receiving)
            self.shell.send(slot, receiving.statement(self.view.number, self.incarnation, lengths))

    def _slot_of(self, receiving: ChannelReceiver) -> SlotId | None:
        assert self.view is not None, receiving.channel
        return self.view.placements[receiving.channel.sender].slot

    def _lengths(self, receiving: ChannelReceiver) -> tuple[Length, ...]:
        """Returns the length of every replica; with ``replicas=f`` only of the sender's own log."""
        logs, log = self.logs, log_of(receiving.channel.sender)
        if self.coverage is None:
            return logs.lengths()
        return (Length(log, logs.end_bytes(log)),) if log in logs.replicas else ()

    def accepts(self, message: Batch | Position) -> ChannelReceiver | None:
        """Returns the receiver of a message to this incarnation, from the sender and in the session that it expects."""
        receiving = self.receivings.get(message.channel)
        if receiving is None or message.receiver != self.incarnation:
            return None
        if message.sender != receiving.sender or message.session != receiving.session:
            return None
        return receiving

    def take_in(self, batch: Batch) -> ChannelReceiver | None:
        """Takes in the log entries of a batch; returns the receiver that may accept its elements, if it may."""
        receiving = self.accepts(batch)
        if receiving is None:
            return None
        receiving.note_traffic()
        return receiving if self._accept_whole(receiving, batch) else None

    def on_position(self, message: Position) -> None:
        """Takes in the sender's heartbeat."""
        receiving = self.accepts(message)
        if receiving is not None and self._accept_whole(receiving, message):
            receiving.note_produced(message.produced_seq)

    def _accept_whole(self, receiving: ChannelReceiver, message: Batch | Position) -> bool:
        """Accepts a message whole or not at all: a gap, in elements or in a log, begins a new session."""
        if receiving.has_gap(message, self.logs):
            self.renew(receiving)
            return False
        receiving.confirm(message)
        self._receive_deltas(receiving, message.deltas)
        return True

    def _receive_deltas(self, receiving: ChannelReceiver, deltas: Iterable[Delta]) -> None:
        """Appends what is new, before anything of the message is processed; it travels on from here."""
        for delta in deltas:
            if not self.logs.receive(delta):
                continue
            if self.coverage is not None:
                self.coverage.came(delta.log, self._slot_of(receiving), self.logs.end_bytes(delta.log))
                if delta.log not in self.coverage.uncovered:
                    continue
            self._on_growth(delta.log)

    def on_needs(self, channel: ChannelId, next_seq: int) -> None:
        """Grants credit until the elements are there that replay waits for, whatever the window."""
        receiving = self.receivings[channel]
        receiving.need(next_seq)
        self.grant(receiving)

    def processed(self, channel: ChannelId, next_seq: int, freed_bytes: int) -> None:
        """Takes over that the task has processed all elements below ``next_seq``."""
        receiving = self.receivings[channel]
        receiving.processed(next_seq, freed_bytes)
        self.grant(receiving)

    def grant(self, receiving: ChannelReceiver) -> None:
        """Sends a handshake where the credit has grown enough."""
        if receiving.grant():
            self.state_to(receiving)

    @property
    def received(self) -> dict[ChannelId, int]:
        """Number of the next element to be received, by channel."""
        return {channel: receiving.next_seq for channel, receiving in self.receivings.items()}

    @property
    def backlog(self) -> int | None:
        """Elements that wait in all inputs; None while some sender has not sent how much it has produced."""
        total = 0
        for receiving in self.receivings.values():
            backlog = receiving.backlog
            if backlog is None:
                return None
            total += backlog
        return total

    def take_over(self, receivings: dict[ChannelId, ChannelReceiver], needed: dict[ChannelId, int]) -> None:
        """Goes on behind what the receivers of a shadow were given; ``needed``: what its replay waits for."""
        for channel, receiving in self.receivings.items():
            receiving.take_over(receivings[channel], needed.get(channel, 0))

    def validate(self) -> None:
        """Asserts what holds between two events."""
        for receiving in self.receivings.values():
            receiving.validate()

    def tick(self) -> None:
        """Repeats the handshake to each sender that has been quiet since the last heartbeat."""
        for receiving in self.receivings.values():
            receiving.adapt(self.options.heartbeat_ms, self.options.channel_delay_ms)
            if receiving.take_quiet():
                self.state_to(receiving)

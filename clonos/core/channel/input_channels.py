"""The receiving ends of an incarnation's input channels: what is accepted, what is stated to the senders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.log.determinants import claims_of
from clonos.core.model.ids import ChannelId, SlotId, log_of
from clonos.core.ports.task_port import Delivered
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.channel_messages import Batch, Position
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta, Length

if TYPE_CHECKING:
    from clonos.core.slot.hosted_task import HostedTask


class InputChannels:
    """All inputs of one incarnation, by channel."""

    def __init__(self, hosted: HostedTask) -> None:
        self.hosted = hosted
        self.receivings: dict[ChannelId, ChannelReceiver] = {}

    def open(self, snapshot: Snapshot | None) -> None:
        """Where to resume, and the claims: what the own log has steps for has certainly been received."""
        hosted = self.hosted
        starts = dict(snapshot.inputs) if snapshot else {}
        channels = hosted.plan.inputs[hosted.task]
        window_bytes_max = hosted.slot.options.credit_window_bytes
        covered = claims_of(bytes(hosted.logs.replicas[hosted.own_log].data), len(channels))
        for channel, count in zip(channels, covered, strict=True):
            start = starts.get(channel.id, 0)
            self.receivings[channel.id] = ChannelReceiver(channel, start, start + count, window_bytes_max)

    def apply_view(self, view: View) -> None:
        """A sender that a view names anew gets a new session."""
        for receiving in self.receivings.values():
            if receiving.apply_view(view.placements[receiving.channel.sender].incarnation):
                self.renew(receiving)

    def renew_from(self, slot: SlotId) -> None:
        """The connection to a slot is there again: what was on its way is lost."""
        for receiving in self.receivings.values():
            if self.hosted.slot.view.placements[receiving.channel.sender].slot == slot:
                self.renew(receiving)

    def renew(self, receiving: ChannelReceiver) -> None:
        """Opens a new session: states where to resume, the claim, and every replica's length."""
        receiving.renew()
        self.state_to(receiving)

    def state_to(self, receiving: ChannelReceiver) -> None:
        """Sends the statement as it is now."""
        hosted = self.hosted
        view = hosted.slot.view
        slot = view.placements[receiving.channel.sender].slot
        if slot is not None:
            lengths = () if receiving.is_confirmed else self._lengths(receiving)
            hosted.shell.send(slot, receiving.statement(view.number, hosted.incarnation, lengths))

    def _lengths(self, receiving: ChannelReceiver) -> tuple[Length, ...]:
        """Of every replica; where sharing stops, of the sender's own log: others seldom ride."""
        logs, log = self.hosted.logs, log_of(receiving.channel.sender)
        if self.hosted.coverage is None:
            return logs.lengths()
        return (Length(log, logs.end_bytes(log)),) if log in logs.replicas else ()

    def accepts(self, message: Batch | Position) -> ChannelReceiver | None:
        """The input that a message is for: of this incarnation, from the one that the view names, of this session."""
        receiving = self.receivings.get(message.channel)
        if receiving is None or message.receiver != self.hosted.incarnation:
            return None
        if message.sender != receiving.sender or message.session != receiving.session:
            return None
        return receiving

    def on_batch(self, batch: Batch, payload: bytes | memoryview) -> None:
        """Elements have come: deltas first, then the elements to the task."""
        receiving = self.accepts(batch)
        if receiving is None:
            return
        receiving.is_quiet = False
        if not self._take_in(receiving, batch):
            return
        skip = receiving.accept(batch, len(payload))
        if skip is not None:
            self.hosted.command(Delivered(batch.channel, batch.kind, batch.count, skip, batch.checkpoint, payload))
            self.hosted.shadow_feeds.took(batch, skip, payload)
        if receiving.grant():
            self.state_to(receiving)

    def on_position(self, message: Position) -> None:
        """The sender's heartbeat."""
        receiving = self.accepts(message)
        if receiving is not None and self._take_in(receiving, message):
            receiving.produced_seq = message.produced_seq

    def _take_in(self, receiving: ChannelReceiver, message: Batch | Position) -> bool:
        """A message is accepted whole or not at all: a gap, in elements or in a log, begins a new session."""
        if receiving.has_gap(message, self.hosted.logs):
            self.renew(receiving)
            return False
        receiving.confirm(message)
        self._receive_deltas(receiving, message.deltas)
        return True

    def _receive_deltas(self, receiving: ChannelReceiver, deltas: Iterable[Delta]) -> None:
        """Appends what is new, before anything of the message is processed; it rides on from here."""
        hosted = self.hosted
        for delta in deltas:
            if not hosted.logs.receive(delta):
                continue
            if hosted.coverage is not None:
                slot = hosted.slot.view.placements[receiving.channel.sender].slot
                hosted.coverage.came(delta.log, slot, hosted.logs.end_bytes(delta.log))
                if delta.log not in hosted.coverage.uncovered:
                    continue
            hosted.grown(delta.log)

    def on_needs(self, channel: ChannelId, next_seq: int) -> None:
        """Replay waits for these elements, whatever the window."""
        receiving = self.receivings[channel]
        receiving.needed_seq = max(receiving.needed_seq, next_seq)
        if receiving.grant():
            self.state_to(receiving)

    def processed(self, channel: ChannelId, next_seq: int, freed_bytes: int) -> None:
        """The task has processed all below ``next_seq``."""
        receiving = self.receivings[channel]
        receiving.processed_seq = next_seq
        receiving.freed(freed_bytes)
        if receiving.grant():
            self.state_to(receiving)

    @property
    def backlog(self) -> int | None:
        """Elements that wait in all inputs; None while some sender has not said what it has produced."""
        total = 0
        for receiving in self.receivings.values():
            backlog = receiving.backlog
            if backlog is None:
                return None
            total += backlog
        return total

    def tick(self) -> None:
        """At the heartbeat, to whoever has been quiet: a lost statement is healed by the next."""
        options = self.hosted.slot.options
        for receiving in self.receivings.values():
            receiving.adapt(options.heartbeat_ms, options.channel_delay_ms)
            if receiving.is_quiet:
                self.state_to(receiving)
            receiving.is_quiet = True

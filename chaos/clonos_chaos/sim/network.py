"""The simulated network: one FIFO per ordered pair of processes; messages are lost where a connection breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.core.model.ids import SlotId
from clonos.core.wire import message_codec
from clonos.core.wire.control_messages import (
    Completed,
    Register,
    Release,
    SlotStatus,
    Snapshotted,
    Suspicion,
    TriggerCheckpoint,
    View,
)
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import JournalLost, LogLost, LogReply, LogRequest, SinkFenced
from clonos.core.wire.replication_messages import AppendAck, AppendLog
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, Clockwork

Deliver = Callable[[SlotId, SlotId, Message, Any], None]
Watch = Callable[[str, SlotId, SlotId, Message], bool]
"""Observer of each message ``sent`` and ``delivered``; returns True to lose a message that was sent."""

CONTROL = frozenset(
    {
        *(LogRequest, LogReply, View, TriggerCheckpoint, Completed, Snapshotted, SlotStatus, AppendLog, AppendAck),
        *(Register, LogLost, JournalLost, SinkFenced, Suspicion, Release),
    }
)
"""Messages that are repeated until answered: any of them may be lost without a broken connection."""

DELAYS_NS = (MILLISECOND_NS // 5, 2 * MILLISECOND_NS, 20 * MILLISECOND_NS)


class _Way:
    """One direction between two processes."""

    __slots__ = ("due_ns", "is_cut", "life", "receiver", "sender", "whole_ns")

    def __init__(self, sender: SlotId, receiver: SlotId) -> None:
        self.sender, self.receiver = sender, receiver
        self.due_ns = 0  # when the last message arrives
        self.life = 0  # grows when the connection breaks: messages of an earlier connection are lost
        self.is_cut = False
        self.whole_ns = 0  # since when it has not been broken


class Network:
    """Network that delivers messages after a random delay, in order within a pair of processes."""

    def __init__(self, clock: Clockwork, deliver: Deliver, delay_ns_max: int, loss: float, is_encoding: bool) -> None:
        self.clock = clock
        self.delay_ns_max = delay_ns_max
        self.loss = loss  # of control messages that are repeated until answered
        self.delivered = 0
        self.watch: Watch | None = None
        self._deliver = deliver
        self._is_encoding = is_encoding
        self._ways: dict[tuple[SlotId, SlotId], _Way] = {}

    def _way(self, sender: SlotId, receiver: SlotId) -> _Way:
        return self._ways.get((sender, receiver)) or self._ways.setdefault((sender, receiver), _Way(sender, receiver))

    def send(self, sender: SlotId, receiver: SlotId, message: Message, payload: Any) -> None:
        """Sends a message."""
        way = self._ways.get((sender, receiver)) or self._way(sender, receiver)
        if way.is_cut:
            return
        if self.watch is not None and self.watch("sent", sender, receiver, message):
            return
        clock = self.clock
        if self.loss and type(message) in CONTROL and clock.rng.random() < self.loss:
            return
        if self._is_encoding:
            message = message_codec.decode_message(message_codec.encode_message(message), str(sender))
        due_ns = clock.now_ns + clock.between(20_000, self.delay_ns_max)
        if due_ns < way.due_ns:
            due_ns = way.due_ns
        way.due_ns = due_ns
        clock.at(due_ns, self._arrive, way, way.life, message, payload)

    def _arrive(self, way: _Way, life: int, message: Message, payload: Any) -> None:
        if life == way.life:
            self.delivered += 1
            if self.watch is not None:
                self.watch("delivered", way.sender, way.receiver, message)
            self._deliver(way.sender, way.receiver, message, payload)

    def break_connection(self, one: SlotId, other: SlotId) -> None:
        """Breaks a connection: messages in flight between the two processes are lost."""
        for way in (self._way(one, other), self._way(other, one)):
            way.life += 1
            way.whole_ns = self.clock.now_ns

    def cut(self, one: SlotId, other: SlotId) -> None:
        """Breaks the connection; nothing passes until ``heal``."""
        for way in (self._way(one, other), self._way(other, one)):
            way.life += 1
            way.is_cut = True

    def lose_way(self, sender: SlotId, receiver: SlotId) -> None:
        """Drops everything that one process sends to the other, until ``heal``."""
        way = self._way(sender, receiver)
        way.life += 1
        way.is_cut = True

    def whole_since_ns(self, one: SlotId, other: SlotId) -> int | None:
        """Returns since when messages pass between two processes; None: they do not."""
        ways = (self._way(one, other), self._way(other, one))
        return None if any(way.is_cut for way in ways) else max(way.whole_ns for way in ways)

    def heal(self, one: SlotId, other: SlotId) -> None:
        """Restores a connection."""
        self._heal(self._way(one, other), self._way(other, one))

    def heal_all(self) -> None:
        """Restores all connections."""
        self._heal(*self._ways.values())

    def _heal(self, *ways: _Way) -> None:
        for way in ways:
            if way.is_cut:
                way.is_cut, way.whole_ns = False, self.clock.now_ns

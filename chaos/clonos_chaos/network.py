"""The simulated network: one FIFO per ordered pair of processes; messages are lost where a connection breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.core import messages as m
from clonos.core import wire
from clonos.core.ids import SlotId
from clonos_chaos.clockwork import MILLISECOND_NS, Clockwork

Deliver = Callable[[SlotId, SlotId, m.Message, Any], None]
Watch = Callable[[str, SlotId, SlotId, m.Message], bool]
"""Told of each message ``sent`` and ``delivered``; True: a message that was sent is lost."""

CONTROL = (
    *(m.Question, m.Answer, m.View, m.Trigger, m.Completed, m.Snapshotted, m.SlotStatus, m.Keep, m.Kept, m.Register),
    *(m.LogLost, m.Accusation, m.Release),
)
"""What is repeated until answered, so that any of them may be lost without a connection breaking."""

DELAYS_NS = (MILLISECOND_NS // 5, 2 * MILLISECOND_NS, 20 * MILLISECOND_NS)


class Network:
    """Delivers after a random delay, in order within a pair."""

    def __init__(self, clock: Clockwork, deliver: Deliver, delay_ns_max: int, loss: float, is_encoding: bool) -> None:
        self.clock = clock
        self.delay_ns_max = delay_ns_max
        self.loss = loss  # of control messages that are repeated until answered
        self.delivered = 0
        self.watch: Watch | None = None
        self._deliver = deliver
        self._is_encoding = is_encoding
        self._last: dict[tuple[SlotId, SlotId], int] = {}
        self._lives: dict[tuple[SlotId, SlotId], int] = {}
        self._cut: set[tuple[SlotId, SlotId]] = set()

    def send(self, sender: SlotId, receiver: SlotId, message: m.Message, payload: Any) -> None:
        """Puts a message on its way."""
        pair = (sender, receiver)
        if pair in self._cut:
            return
        if self.watch is not None and self.watch("sent", sender, receiver, message):
            return
        if self.loss and isinstance(message, CONTROL) and self.clock.luck.random() < self.loss:
            return
        if self._is_encoding:
            message = wire.decode_message(wire.encode_message(message), str(sender))
        due = max(self._last.get(pair, 0), self.clock.now_ns + self.clock.between(20_000, self.delay_ns_max))
        self._last[pair] = due
        self.clock.at(due, self._arrive, pair, self._lives.get(pair, 0), message, payload)

    def _arrive(self, pair: tuple[SlotId, SlotId], life: int, message: m.Message, payload: Any) -> None:
        if life == self._lives.get(pair, 0):
            self.delivered += 1
            if self.watch is not None:
                self.watch("delivered", *pair, message)
            self._deliver(*pair, message, payload)

    def break_connection(self, one: SlotId, other: SlotId) -> None:
        """What is on its way between two processes is lost."""
        for pair in ((one, other), (other, one)):
            self._lives[pair] = self._lives.get(pair, 0) + 1

    def cut(self, one: SlotId, other: SlotId) -> None:
        """Breaks the connection; nothing passes until ``heal``."""
        self.break_connection(one, other)
        self._cut |= {(one, other), (other, one)}

    def lose_way(self, sender: SlotId, receiver: SlotId) -> None:
        """What one sends to the other is lost from now on, until ``heal``."""
        pair = (sender, receiver)
        self._lives[pair] = self._lives.get(pair, 0) + 1
        self._cut.add(pair)

    def is_cut(self, one: SlotId, other: SlotId) -> bool:
        """Whether nothing passes from one to the other just now."""
        return (one, other) in self._cut

    def heal(self, one: SlotId, other: SlotId) -> None:
        """The connection is there again."""
        self._cut -= {(one, other), (other, one)}

    def heal_all(self) -> None:
        """All connections are there again."""
        self._cut.clear()

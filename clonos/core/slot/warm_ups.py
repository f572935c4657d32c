"""Reads of a slot for tasks of the next plan, before the view with its widths comes (protocol 6.12).

The coordinator repeats its request. What was read is dropped when that ends, so a change of widths that is given up, or
whose coordinator dies, leaves nothing here. A generation that begins ends it too: its tasks have what they can use.
"""

from __future__ import annotations

from typing import Final

from clonos.core.model.options import Options
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.wire.control_messages import WarmUp

WARM_HEARTBEATS: Final = 30
"""Heartbeats for which a ``WarmUp`` counts. To drop it too early costs a longer pause."""


class WarmUps:
    """Requests to read ahead. ``asked`` and ``done``: numbers of the last request and of the last finished request, 0
    if there is none. ``generation``: that of the requests."""

    def __init__(self, options: Options, shell: EffectCollector) -> None:
        self.options, self.shell = options, shell
        self.asked = self.done = self.generation = 0
        self._until_ns = 0

    def ask(self, message: WarmUp) -> None:
        """Reads what is asked for, unless a later request has come, and retains it while the request is repeated."""
        if message.number < self.asked:
            return
        self._until_ns = self.shell.now_ns() + WARM_HEARTBEATS * self.options.heartbeat_ms * 1_000_000
        if message.number > self.asked and message.tasks:
            self.asked, self.generation = message.number, message.generation
            self.shell.read_ahead(message.number, message.widths, message.tasks)

    def on_warmed_up(self, number: int) -> bool:
        """Notes that a request is done; returns whether it is the last one."""
        if number != self.asked:
            return False
        self.done = number
        return True

    def tick(self, now_ns: int) -> None:
        """Drops what was read, if its request is not repeated any more."""
        if self.asked and now_ns >= self._until_ns:
            self.drop()

    def drop(self) -> None:
        """Drops what was read, after the reads that were asked for before."""
        if self.asked:
            self.asked = self.done = 0
            self.shell.drop_read_ahead()

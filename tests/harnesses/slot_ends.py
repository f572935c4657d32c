"""Listener of a provider of slots: a test takes the ended slots one by one and waits for them."""

import queue

from clonos.io.process.slot_provider import SlotEnded


class SlotEnds:
    """Called by the provider with each slot that ended."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.queue: queue.Queue[SlotEnded] = queue.Queue()

    def __call__(self, ended: SlotEnded) -> None:
        self.queue.put(ended)

    def next(self) -> SlotEnded:
        """The next slot that ends, within the limit."""
        return self.queue.get(timeout=self._limit_s)

"""Virtual time: a queue of events in the order (instant, arrival), and the random stream of the world."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000 * MILLISECOND_NS


class Clockwork:
    """Event loop of a world, and its only clock."""

    def __init__(self, seed: int, epoch_ns: int = 1_700_000_000 * SECOND_NS) -> None:
        self.rng = Random(seed)
        self.now_ns = 0
        self.epoch_ns = epoch_ns  # wall clock at virtual instant 0
        self.events_run = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._arrivals = 0
        self._random = self.rng.random

    @property
    def wall_ns(self) -> int:
        """Returns the wall clock of every process, in ns since the Unix epoch."""
        return self.epoch_ns + self.now_ns

    def at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Calls a function at an instant, or now if the instant has passed."""
        self._arrivals += 1
        due_ns = instant_ns if instant_ns > self.now_ns else self.now_ns
        heappush(self._heap, (due_ns, self._arrivals, call, arguments))

    def after(self, delay_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Calls a function after a delay."""
        self._arrivals += 1
        heappush(self._heap, (self.now_ns + delay_ns, self._arrivals, call, arguments))

    def between(self, low_ns: int, high_ns: int) -> int:
        """Draws a random delay; short ones are more frequent."""
        share = self._random()
        return low_ns + int((high_ns - low_ns) * (share * share))

    def step(self) -> None:
        """Runs the next event. There is always a next event, because processes tick."""
        self.now_ns, _, call, arguments = heappop(self._heap)
        self.events_run += 1
        call(*arguments)

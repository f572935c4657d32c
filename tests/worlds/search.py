"""How many worlds a test of random worlds runs: a number, or as many as its share of the minutes allows."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.stages import SHARES


@dataclass(frozen=True, slots=True)
class Search:
    """The seeds of the worlds to run. With ``minutes`` each kind of world gets its share of these instead of a number.

    ``properties``: what the report of the test says of its progress.
    """

    seeds: range
    minutes: float | None
    properties: list[tuple[str, object]]

    def seeds_of(self, part: int) -> range:
        """The seeds for a kind of world that has one in ``part`` of all; with minutes, more than fit into them."""
        if self.minutes is not None:
            return range(self.seeds.start, self.seeds.start + 10**6)
        return self.seeds[: max(1, len(self.seeds) // part)]

    def ends_by_time(self, kind: str) -> Callable[[], bool]:
        """Returns what says whether the share of a kind of world is used up."""
        if self.minutes is None:
            return lambda: False
        end_s = time.monotonic() + 60 * self.minutes * SHARES[kind]
        return lambda: time.monotonic() > end_s

    def note(self, kind: str, done: int, wanted: int = 0) -> Any:
        """Tells the summary of the run how far the test came."""
        self.properties.append((f"{kind} worlds", (done, wanted)))

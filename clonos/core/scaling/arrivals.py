"""Arrivals at the sources, over windows in which no reader has looked at its external system.

A reader tells what waits as of its last look. While the job makes it wait it looks rarely, and what waits seems to
fall by what is read, as if nothing came. So what a look finds counts for the windows since the last look, and their
rate holds for some windows after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from clonos.core.scaling.load import Load, VertexLoad

SEEN_SHARE_MIN: Final = 0.2
"""Arrivals as a share of what was read, below which nothing was seen to arrive. The estimate of the records in bytes
varies by some percent."""

BLOCKED_SHARE_MIN: Final = 0.5
"""Share of the time in which a source is made to wait, from which on it may not have looked."""

HELD_PER_GAP: Final = 2
"""Windows for which a rate holds, as a multiple of those that it is the mean of."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrivals at one source.

    ``unseen``: windows in a row without a look. ``rate_per_s``: records per second that arrived, the mean over the
    windows up to the last look, which is taken for ``held`` more windows, this one included.
    """

    unseen: int = 0
    rate_per_s: float = 0.0
    held: int = 0


def with_arrivals(load: Load, before: Mapping[str, Arrivals]) -> tuple[Load, dict[str, Arrivals]]:
    """Returns the load with the growth of what waits corrected, and what to remember."""
    vertices, arrivals = dict(load.vertices), {}
    for name, vertex in load.vertices.items():
        if vertex.lag_records is not None:
            found = _after(vertex, before.get(name, Arrivals()))
            arrivals[name] = found
            if found.held:
                vertices[name] = replace(vertex, lag_growth_per_s=found.rate_per_s - vertex.records_in_per_s)
    return replace(load, vertices=vertices), arrivals


def _after(load: VertexLoad, before: Arrivals) -> Arrivals:
    seen_per_s = load.records_in_per_s + load.lag_growth_per_s
    has_looked = seen_per_s > SEEN_SHARE_MIN * load.records_in_per_s or not load.lag_records
    if has_looked and not before.unseen:
        return Arrivals()
    if has_looked:
        windows = before.unseen + 1
        return Arrivals(0, max(0.0, seen_per_s) / windows, HELD_PER_GAP * windows)
    if load.blocked_share < BLOCKED_SHARE_MIN:  # it reads as it can, so it has looked
        return Arrivals()
    return replace(before, unseen=before.unseen + 1, held=max(0, before.held - 1))

"""Demand of the vertices of a job, and the widths that it needs: the arithmetic of DS2.

What a vertex does in a window and the share of the time in which its busiest task works give what it *can* do. The
task that works most counts, not the mean: it ends the job's progress first, whether it has more keys or a slower host.
What arrives at the sources, passed on with the ratios of output to input that were measured, gives what the vertex
*should* do. (Kalavri et al.: Three steps is all you need, OSDI 2018.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from clonos.core.model.plan import Plan
from clonos.core.scaling.load import Load, VertexLoad

BLOCKED_SHARE_MAX: Final = 0.9
"""Above it a source hardly reads, and its demand is taken as ten times what it reads, not more."""

WORKED_OFF_WITHIN: Final = 2.0
"""Lag that falls so fast that it has gone within this multiple of ``catch_up`` needs no more tasks."""

CATCHING_UP_SHARE: Final = 0.9
"""Share of the time in which a task may work while it also works off lag."""


REST_OF_KEY: Final = 0.25
"""With one key that fills a task, more tasks help until this task works a quarter as long for other keys as for it."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Demand of a vertex as multiples of what it did in the window: to keep up, and to work off the lag as well."""

    keeping_up: float
    catching_up: float
    is_limited: bool = False  # it is not more because some vertex cannot do more with its largest width

    def __post_init__(self) -> None:
        assert 0.0 <= self.keeping_up <= self.catching_up, self


SAME: Final = Growth(1.0, 1.0)


def growths(plan: Plan, load: Load, catch_up_s: float, widths_max: Mapping[str, int]) -> list[Growth | None]:
    """Returns the demand of each vertex; None if it cannot be told, because nothing was processed and more waits.

    A vertex that could not take its demand with its largest width makes the others wait: nobody is asked to do more
    than they could then. ``catch_up_s``: seconds in which lag should be worked off. ``widths_max``: by vertex.
    """
    found: list[Growth | None] = []
    limits = []
    for vertex in plan.vertices:
        here = load.vertices[vertex.name]
        share = busy_share_at(here, max(here.width, widths_max[vertex.name]))
        limits.append(1.0 / share if share else inf)
    for number, vertex in enumerate(plan.vertices):
        inputs = [edge.source for edge in plan.edges if edge.target == number]
        here = load.vertices[vertex.name]
        growth = _of_inputs(plan, load, here, inputs, found) if inputs else _of_source(here, catch_up_s)
        found.append(_limited(growth, limits[number]))
    for edge in sorted(plan.edges, key=lambda edge: edge.source, reverse=True):
        receiver = None if edge.target is None else found[edge.target]
        if receiver is not None and receiver.is_limited:
            found[edge.source] = _limited(found[edge.source], receiver.catching_up)
    for number, vertex in enumerate(plan.vertices):
        inputs = [edge.source for edge in plan.edges if edge.target == number]
        if inputs:
            growth = _of_inputs(plan, load, load.vertices[vertex.name], inputs, found)
            found[number] = _limited(growth, limits[number])
    return found


def _limited(growth: Growth | None, limit: float) -> Growth | None:
    if growth is None or growth.catching_up <= limit:
        return growth
    return Growth(min(growth.keeping_up, limit), limit, is_limited=True)


def _of_source(load: VertexLoad, catch_up_s: float) -> Growth | None:
    """Returns the demand of a source. Without lag, what it could read if nobody made it wait is a lower bound."""
    rate, lag = load.records_in_per_s, load.lag_records
    free = 1.0 / (1.0 - min(load.blocked_share, BLOCKED_SHARE_MAX))
    if not rate:
        if load.blocked_share > BLOCKED_SHARE_MAX:  # those behind it work off what they have
            return Growth(free, free)
        return None if lag else SAME
    if lag is None:
        return Growth(free, free)
    arriving = max(0.0, rate + load.lag_growth_per_s)
    goes_in_s = lag / -load.lag_growth_per_s if load.lag_growth_per_s < 0 else inf
    extra = lag / catch_up_s if lag and goes_in_s > WORKED_OFF_WITHIN * catch_up_s else 0.0
    return Growth(arriving / rate, (arriving + extra) / rate)


def _of_inputs(
    plan: Plan, load: Load, here: VertexLoad, inputs: list[int], found: list[Growth | None]
) -> Growth | None:
    """Returns the demand of a vertex: what it got, grown as its inputs grow, each by its part of the records."""
    parts = []
    for source in inputs:
        growth = found[source]
        if growth is None:
            return None
        outputs = sum(edge.source == source and edge.target is not None for edge in plan.edges)
        parts.append((load.vertices[plan.vertices[source].name].records_out_per_s / outputs, growth))
    total = sum(rate for rate, _ in parts)
    if not total:  # for the whole window the inputs were made to wait, or there was nothing to do
        most = max((growth for _, growth in parts), key=lambda growth: growth.catching_up)
        return most if here.records_in_per_s or most.catching_up <= SAME.catching_up else None
    keeping_up = sum(rate * growth.keeping_up for rate, growth in parts) / total
    catching_up = max(keeping_up, sum(rate * growth.catching_up for rate, growth in parts) / total)
    return Growth(keeping_up, catching_up, any(growth.is_limited for _, growth in parts))


def needed_width(load: VertexLoad, growth: Growth, target_share: float, is_source: bool) -> float:
    """Returns the number of tasks with which the busiest one works for ``target_share`` of the time; ``inf`` if no
    number is enough, because one key alone needs more, and more tasks would hardly help.

    A key stays with one task, so only the rest of the records of the busiest task is divided further.
    """
    reports_no_lag = is_source and load.lag_records is None  # then it is not known that it could not do what it should
    keeping_up, catching_up = (1.0, 1.0) if reports_no_lag else (growth.keeping_up, growth.catching_up)
    return max(
        _width_for(load, load.busy_share * keeping_up, target_share),
        _width_for(load, load.busy_share * catching_up, max(target_share, CATCHING_UP_SHARE)),
    )


def _width_for(load: VertexLoad, share: float, target_share: float) -> float:
    if share <= target_share / load.width:  # one task is enough, whatever its keys
        return 1
    of_key = share * load.hot_key_share
    if of_key < target_share:
        return max(1, ceil(round((share - of_key) * load.width / (target_share - of_key), 9)))
    useful = ceil((share - of_key) * load.width / (of_key * REST_OF_KEY))
    return useful if useful > load.width else inf


def busy_share_at(load: VertexLoad, width: int) -> float:
    """Returns the share of the time in which the busiest task would work for the same records with another width."""
    return load.busy_share * (load.hot_key_share + (1.0 - load.hot_key_share) * load.width / width)


def capacity_per_s(load: VertexLoad, width: int | None = None) -> float:
    """Returns the records per second that a vertex can take with its width, or with another one."""
    share = busy_share_at(load, load.width if width is None else width)
    return load.records_in_per_s / share if share > 0 else inf


def at_most(values: Iterable[float], limit: int) -> int:
    """Returns the largest of the widths, up to a limit."""
    return int(min(limit, max(values)))

"""Values of a slot that the tasks and shadows in it share (protocol 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from clonos.core.channel.inflight_budget import InflightBudget
from clonos.core.model.ids import LogId, SlotId, ThreadId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.effect_collector import EffectCollector


@dataclass(frozen=True, slots=True)
class SlotContext:
    """Values of one slot. What changes with the view is told to each task and shadow."""

    slot: SlotId
    plan: Plan
    options: Options
    shell: EffectCollector
    budget: InflightBudget
    threads: Iterator[ThreadId]
    """Numbers of threads, each given once."""
    on_status_change: Callable[[], None]
    """Called when the slot's status has changed in something that others wait for."""
    log_offsets: dict[LogId, int] = field(default_factory=dict)
    """Offset of each causal log, in bytes, at the last completed checkpoint that the slot knows."""

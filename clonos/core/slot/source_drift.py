"""How far the sources of a slot may read, by the coordinator's last ``DriftLimit`` (protocol 2.2).

It expires by itself, so neither a lost message nor a dead coordinator leaves a source waiting for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.watermark import END_OF_TIME_NS
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.control_messages import DriftLimit


class SourceDrift:
    """Drift alignment of the sources of one slot. A source waits for its first limit like for any other."""

    def __init__(self, plan: Plan, options: Options, shell: EffectCollector) -> None:
        self._sources = frozenset(plan.timed_sources if plan.has_drift_limit(options) else ())
        self._lease_ns, self._shell = options.lease_ms * 1_000_000, shell
        self._until_ns: int | None = None
        """When the last message expires; None before the first heartbeat and message."""

    def limit(self, message: DriftLimit, hosted: Iterable[HostedTask]) -> None:
        """Tells the sources how far they may read, for a lease."""
        self._until_ns = self._shell.now_ns() + self._lease_ns
        for each in hosted:
            is_slowest = each.task == message.slowest
            self._limit(each, message.slowest_ns_max if is_slowest else message.watermark_ns_max)

    def tick(self, now_ns: int, hosted: Iterable[HostedTask]) -> None:
        """Lets the sources read on when the coordinator has sent nothing for a lease."""
        if self._until_ns is None:
            self._until_ns = now_ns + self._lease_ns
        if now_ns >= self._until_ns:
            for each in hosted:
                self._limit(each, END_OF_TIME_NS)

    def _limit(self, hosted: HostedTask, watermark_ns_max: int) -> None:
        if hosted.task in self._sources:
            hosted.running.limit_drift(watermark_ns_max)

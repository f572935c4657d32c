"""How far the sources of a slot may read, by the coordinator's last ``DriftLimit`` (protocol 2.2).

It expires by itself, so neither a lost message nor a dead coordinator leaves a source waiting for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.core.model.options import Options
from clonos.core.model.watermark import END_OF_TIME_NS
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.control_messages import DriftLimit


class SourceDrift:
    """Drift alignment of the sources of one slot."""

    def __init__(self, options: Options, shell: EffectCollector) -> None:
        self._lease_ns, self._shell = options.lease_ms * 1_000_000, shell
        self._until_ns: int | None = None
        """When the last message expires; None if there is none."""

    def limit(self, message: DriftLimit, hosted: Iterable[HostedTask]) -> None:
        """Tells the sources how far they may read, for a lease."""
        self._until_ns = self._shell.now_ns() + self._lease_ns
        for each in hosted:
            is_slowest = each.task == message.slowest
            _limit(each, message.slowest_ns_max if is_slowest else message.watermark_ns_max)

    def tick(self, now_ns: int, hosted: Iterable[HostedTask]) -> None:
        """Lets the sources read on when the coordinator has sent nothing for a lease."""
        if self._until_ns is not None and now_ns >= self._until_ns:
            self._until_ns = None
            for each in hosted:
                _limit(each, END_OF_TIME_NS)


def _limit(hosted: HostedTask, watermark_ns_max: int) -> None:
    if hosted.task in hosted.plan.timed_sources:
        hosted.running.limit_drift(watermark_ns_max)

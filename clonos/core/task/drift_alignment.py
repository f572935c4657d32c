"""Drift alignment of a source task: it reads no more while it is too far ahead of the slowest source (protocol 2.2).

That it waits is in no log, because what it reads is.
"""

from __future__ import annotations

from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.ports.operator_chain import TimedChain


class DriftAlignment:
    """Drift alignment of one incarnation of a source that makes watermarks."""

    __slots__ = ("_chain", "_is_report_due", "_watermark_ns_max")

    def __init__(self, chain: TimedChain, plan: Plan, options: Options) -> None:
        is_on = plan.has_drift_limit(options)
        self._chain, self._is_report_due = chain, is_on
        self._watermark_ns_max = INSTANT_NS_MIN if is_on else END_OF_TIME_NS  # it waits for the first limit

    def limit(self, watermark_ns_max: int) -> None:
        """Takes over the instant above which the source reads nothing."""
        self._watermark_ns_max = watermark_ns_max

    @property
    def reached_ns(self) -> int:
        """Instant that the source reports: other sources may be ahead of it by the drift."""
        return self._chain.reached_ns()

    def take_report(self) -> bool:
        """Returns True once, because a restored source that finds nothing to read has to report too."""
        is_due, self._is_report_due = self._is_report_due, False
        return is_due

    def is_ahead(self) -> bool:
        """Returns whether the source has to wait. A source that is idle, or has no watermark yet, reads on."""
        if not self._watermark_ns_max < self._chain.reached_ns() < END_OF_TIME_NS:
            return False
        self.hold_back()
        return True

    def hold_back(self) -> None:
        """Notes that the source reads nothing, so that none of its splits is taken for idle."""
        self._chain.hold_back()

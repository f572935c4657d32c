"""Backpressure of a slot: sources pause when a budget runs short, and at last the job fails (protocol 4).

Owns the slot's ``InflightBudget``. Looked at once a heartbeat and whenever something was freed or spilled, never on the
way of an element.
"""

from __future__ import annotations

from clonos.core.channel.budgets import BudgetUse, LimitExceeded, fullest
from clonos.core.channel.inflight_budget import InflightBudget
from clonos.core.model.options import Options
from clonos.core.ports.effect_collector import EffectCollector

HOLD_HEARTBEATS = 3
"""Heartbeats for which a ``Hold`` of the coordinator counts; it is repeated while its reason lasts."""


class Pressure:
    """Budgets of one slot. ``pauses_sources`` gates what its sources read."""

    def __init__(self, options: Options, shell: EffectCollector) -> None:
        self.options, self.shell = options, shell
        self.budget = InflightBudget(options, shell.spill)
        self.is_over_soft_limit = False  # here
        self.is_held = False  # another slot is above its soft limit
        self._held_until_ns = 0

    @property
    def pauses_sources(self) -> bool:
        """Whether sources read nothing new; barriers still pass."""
        return self.is_over_soft_limit or self.is_held

    def hold(self) -> bool:
        """Takes over that some slot is above a soft limit; returns whether that is news."""
        self._held_until_ns = self.shell.now_ns() + HOLD_HEARTBEATS * self.options.heartbeat_ms * 1_000_000
        was_held, self.is_held = self.is_held, True
        return not was_held

    def tick(self, now_ns: int) -> bool:
        """Tries the disk again at the heartbeat; returns whether a hold has run out."""
        self.budget.try_again()
        has_run_out = self.is_held and now_ns >= self._held_until_ns
        if has_run_out:
            self.is_held = False
        return has_run_out

    def use(self, log_bytes: int) -> BudgetUse | None:
        """Returns what is above a soft limit, if anything is; ``log_bytes``: of causal logs and replicas here."""
        return fullest(self.options, self.budget.memory_bytes, self.budget.disk_bytes, log_bytes)

    def update(self, use: BudgetUse | None) -> bool:
        """Takes over what is above a soft limit; returns whether the slot has passed the limit up or down."""
        if (use is not None) == self.is_over_soft_limit:
            return False
        self.is_over_soft_limit = use is not None
        if use is not None:
            self.shell.warn(
                f"above a soft limit: {use}. Sources pause, and a checkpoint begins",
                option=use.option,
                used_bytes=use.used_bytes,
            )
        return True

    def limit_exceeded(self, use: BudgetUse) -> LimitExceeded:
        """Returns the error of a slot that is above a hard limit."""
        return LimitExceeded(str(use), use.option, self.budget.failure)

    def on_spilled(self, number: int, stored_bytes: int, error: str) -> None:
        """Counts a segment that is on disk; a segment that cannot be written stays in memory for now."""
        if self.budget.spilled(number, stored_bytes, error):
            self.shell.warn(
                f"cannot write its in-flight logs to disk: {error}. They stay in memory;"
                " beyond inflight_memory_bytes sources pause",
            )

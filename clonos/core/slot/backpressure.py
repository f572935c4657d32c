"""What a slot does when a budget runs short: sources pause, a checkpoint is asked for; at last the job fails aloud.

Owns the slot's ``InflightBudget`` and takes in what its ``SpillStore`` answers. Looked at once a heartbeat and whenever
something was freed or spilled, never on the way of an element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.channel.budgets import Level, LimitExceeded, SegmentUnreadable, Use, fullest
from clonos.core.channel.inflight_budget import InflightBudget
from clonos.core.channel.segment import SegmentPhase
from clonos.core.model.ids import ChannelId
from clonos.core.ports.task_failure import failure_of
from clonos.core.wire.recovery_messages import Recourse

if TYPE_CHECKING:
    from clonos.core.slot.slot import Slot

HOLD_HEARTBEATS = 3
"""A ``Hold`` of the coordinator counts for so long after it has come; it is repeated while its reason lasts."""


class Pressure:
    """Of one slot. ``pauses_sources`` is what its sources are gated by."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.budget = InflightBudget(slot.options, slot.shell.spill)
        self.is_over_soft_limit = False  # here
        self.is_held = False  # some other slot is over its soft limit
        self.log_bytes = 0  # of causal logs and replicas of this slot
        self._held_until_ns = 0

    @property
    def pauses_sources(self) -> bool:
        """Sources read nothing new; barriers still pass."""
        return self.is_over_soft_limit or self.is_held

    def hold(self) -> None:
        """The coordinator says that some slot is above a soft limit."""
        self._held_until_ns = self.slot.shell.now_ns() + HOLD_HEARTBEATS * self.slot.options.heartbeat_ms * 1_000_000
        if not self.is_held:
            self.is_held = True
            self._update_output_budgets()

    def tick(self, now_ns: int) -> None:
        """A heartbeat."""
        self.budget.try_again()
        if self.is_held and now_ns >= self._held_until_ns:
            self.is_held = False
            self._update_output_budgets()
        self.check()

    def check(self) -> None:
        """Compares what is used with the limits. Shadows give way before anybody has to wait."""
        slot = self.slot
        use = self._use()
        if use is not None and slot.end_shadows():
            use = self._use()
        if use is not None and use.level is Level.HARD:
            self._fail_aloud(use)
        if (use is not None) == self.is_over_soft_limit:
            return
        self.is_over_soft_limit = use is not None
        if use is not None:
            slot.shell.warn(
                f"slot {slot.id} is above its soft limit: {use}. Sources pause, a checkpoint is asked for",
                option=use.option,
                used_bytes=use.used_bytes,
            )
        slot.status_is_due = True
        self._update_output_budgets()

    def _use(self) -> Use | None:
        """What is above a soft limit, if anything is."""
        slot, budget = self.slot, self.budget
        log_bytes = 0
        for hosted in slot.hosted.values():
            log_bytes += hosted.logs.size_bytes
        for keeper in slot.keepers.values():
            log_bytes += keeper.logs.size_bytes
        for shadow in slot.shadows.values():
            log_bytes += shadow.logs.size_bytes
        self.log_bytes = log_bytes
        return fullest(slot.options, budget.memory_bytes, budget.disk_bytes, log_bytes)

    def _update_output_budgets(self) -> None:
        for hosted in self.slot.hosted.values():
            hosted.update_output_budget()

    def _fail_aloud(self, use: Use) -> None:
        """One of the tasks here fails for all; of a slot that only keeps logs, one that it keeps for."""
        slot = self.slot
        fault = LimitExceeded(str(use), use.option, self.budget.failure)
        if slot.hosted:
            hosted = slot.hosted[min(slot.hosted)]
            if hosted.failed is None or hosted.failed.recourse is Recourse.RETRY:  # it is repeated at the heartbeat
                hosted.failed = failure_of(hosted.task, hosted.incarnation, fault, Recourse.NONE, with_traceback=False)
                slot.send_to_coordinator(hosted.failed)
        elif slot.keepers:
            keeper = slot.keepers[min(slot.keepers)]
            slot.send_to_coordinator(
                failure_of(keeper.task, keeper.incarnation, fault, Recourse.NONE, with_traceback=False)
            )

    # ------------------------------------------------------------------ what the disk answers

    def on_spilled(self, number: int, stored_bytes: int, error: str) -> None:
        """A segment is on disk, or the disk has failed: then it stays in memory and is written again later."""
        if self.budget.spilled(number, stored_bytes, error):
            self.slot.shell.warn(
                f"slot {self.slot.id} cannot write its in-flight logs to disk: {error}. They stay in memory;"
                " beyond inflight_memory_bytes sources pause",
                slot=self.slot.id,
            )
        self.check()

    def on_segment_loaded(self, number: int, payloads: list[bytes] | None, error: str) -> None:
        """A segment is there: its channel goes on. One that cannot be read ends its task's incarnation, whose successor
        makes the elements again."""
        segment = self.budget.loaded(number, payloads)
        if segment is None:
            return
        channel = segment.channel
        hosted = self.slot.hosted[self.slot.plan.channels[channel].sender]
        if segment.phase is SegmentPhase.UNREADABLE:
            if hosted.failed is None:
                fault = SegmentUnreadable(
                    self._channel_name(channel), error or "it holds other elements than were stored"
                )
                hosted.failed = failure_of(hosted.task, hosted.incarnation, fault, Recourse.RETRY, with_traceback=False)
                self.slot.send_to_coordinator(hosted.failed)
        elif channel in hosted.sendings:
            hosted.pump(hosted.sendings[channel])
            hosted.update_output_budget()
        else:
            hosted.effects.pump()

    def _channel_name(self, number: ChannelId) -> str:
        plan, channel = self.slot.plan, self.slot.plan.channels[number]
        receiver = "outside" if channel.receiver is None else plan.task_name(channel.receiver)
        return f"{plan.task_name(channel.sender)} -> {receiver}"

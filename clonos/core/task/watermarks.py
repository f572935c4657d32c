"""Event time of a task: one watermark per input channel, and their minimum as the task's own (protocol 2).

The task's watermark is the minimum over the channels that have neither ended nor are idle, and never falls. Channels
of an edge without event time do not count. It changes
in steps only, so replay by the order of elements gives the same changes at the same places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId
from clonos.core.model.plan import Plan
from clonos.core.model.watermark import ACTIVE, IDLE, Activity, Watermark
from clonos.core.ports.operator_chain import Chain
from clonos.core.ports.task_snapshot import ChannelTime, EventTime
from clonos.core.task.inputs import InputQueue
from clonos.core.values import TimedRows


class InputWatermarks:
    """Watermarks of one incarnation's input channels."""

    __slots__ = ("_idle", "_inputs", "_is_idle", "_own", "_reached")

    def __init__(self, inputs: Sequence[InputQueue], restored: EventTime | None) -> None:
        self._inputs = inputs
        self._reached: dict[ChannelId, int] = {}  # watermark of each channel that has had one
        self._idle: set[ChannelId] = set()  # ended channels may be among them
        self._own: int | None = None
        #: Invariant: never falls, also over restores
        self._is_idle = False
        #: Invariant: whether every channel that has not ended is idle, and there is one, as of the last change
        if restored is not None:
            self._own, self._is_idle = restored.own_ns, restored.is_idle
            self._reached = {each.channel: each.reached_ns for each in restored.channels if each.reached_ns is not None}
            self._idle = {each.channel for each in restored.channels if each.is_idle}

    @property
    def own_ns(self) -> int | None:
        """Watermark of the task, None before the first one."""
        return self._own

    def take(self, channel: ChannelId, watermark: Watermark) -> list[Watermark]:
        """Takes a watermark of a channel. Returns the changes of the task's own, in order."""
        if watermark is IDLE:
            self._idle.add(channel)
        elif watermark is ACTIVE:
            self._idle.discard(channel)
        elif not isinstance(watermark, Activity):
            self._reached[channel] = max(watermark, self._reached.get(channel, watermark))
        return self._changes()

    def end(self) -> list[Watermark]:
        """Returns the changes of the task's own watermark after a channel has ended.

        The end of the last one stands for the end of event time, and is no change here.
        """
        return self._changes() if self._reached or self._idle else []

    def _changes(self) -> list[Watermark]:
        open_channels = [queue.channel for queue in self._inputs if not queue.has_ended]
        counted = [channel for channel in open_channels if channel not in self._idle]
        changes: list[Watermark] = []
        if self._is_idle and counted:
            self._is_idle = False
            changes.append(ACTIVE)
        becomes_idle = bool(open_channels) and not counted and not self._is_idle
        # One after the other, channels that become idle leave it to the latest; so the order makes no difference.
        reached = self._latest(open_channels) if becomes_idle else self._lowest(counted)
        if reached is not None and (self._own is None or reached > self._own):
            self._own = reached
            changes.append(reached)
        if becomes_idle:
            self._is_idle = True
            changes.append(IDLE)
        return changes

    def _latest(self, channels: list[ChannelId]) -> int | None:
        """Returns the maximum over channels, None if none of them has had a watermark."""
        return max([self._reached[channel] for channel in channels if channel in self._reached], default=None)

    def _lowest(self, channels: list[ChannelId]) -> int | None:
        """Returns the minimum over channels, None while one of them has had no watermark."""
        if not channels or any(channel not in self._reached for channel in channels):
            return None
        return min(self._reached[channel] for channel in channels)

    def event_time(self) -> EventTime | None:
        """Returns what a snapshot needs of it; None if no watermark has come."""
        if not self._reached and not self._idle:
            return None
        channels = sorted(self._reached.keys() | self._idle)
        times = tuple(ChannelTime(channel, self._reached.get(channel), channel in self._idle) for channel in channels)
        return EventTime(self._own, self._is_idle, times)


def timed_inputs(plan: Plan, queues: Sequence[InputQueue]) -> list[InputQueue]:
    """Returns the inputs of a task whose watermarks count."""
    return [queue for queue in queues if plan.edges[plan.channels[queue.channel].edge].has_event_time]


def advance(chain: Chain, changes: list[Watermark]) -> None:
    """Passes the changes of a task's watermark to its chain, which fires timers and forwards them."""
    for change in changes:
        chain.advance_watermark(change)


def process(chain: Chain, kind: ElementKind, port: int, batch: Any) -> None:
    """Passes the records between two watermarks to the chain."""
    if kind is ElementKind.COLUMNS:
        chain.process_columns(port, batch)
    else:
        assert kind is ElementKind.ROWS, kind
        process_rows(chain, port, batch)


def process_rows(chain: Chain, port: int, batch: TimedRows | list[Any]) -> None:
    """Passes rows to the chain, with their timestamps if they have them."""
    if isinstance(batch, TimedRows):
        chain.process_rows(port, batch.rows, batch.times)
    else:
        chain.process_rows(port, batch)

"""Mutants of event time: the minimum over inputs, idleness, snapshots, the order of timers and watermarks, sources."""

from __future__ import annotations

from typing import Any

from clonos.core.coordinator import event_handlers, sources
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, TaskId
from clonos.core.model.plan import Partitioning
from clonos.core.model.watermark import END_OF_TIME_NS, IDLE, INSTANT_NS_MIN, Watermark
from clonos.core.task.task_output import OutputPort
from clonos.core.task.watermarks import InputWatermarks
from clonos.core.wire.control_messages import DriftLimit
from clonos.operators.event_time.regions import Region
from clonos.operators.event_time.source_watermarks import SourceWatermarks
from clonos.operators.event_time.timed_source import TimedHead
from clonos.operators.operator import Scope
from clonos.operators.steps.async_map import AsyncMap
from clonos_chaos.project.mutants.mutation import Mutation, mutant
from clonos_chaos.project.mutants.task_mutants import snapshot_with


@mutant("2")
def maximum_for_minimum(mutation: Mutation) -> None:
    """A task's watermark is the minimum over its input channels."""

    def lowest(self: InputWatermarks, channels: list[ChannelId]) -> int | None:
        return max((self._reached[channel] for channel in channels if channel in self._reached), default=None)

    mutation.swap(InputWatermarks, "_lowest", lowest)


@mutant("2")
def one_watermark_for_all_inputs(mutation: Mutation) -> None:
    """A task keeps one watermark per input channel."""

    def take(right: Any, self: InputWatermarks, channel: ChannelId, watermark: Watermark) -> list[Watermark]:
        if isinstance(watermark, int):
            self._reached.update({queue.channel: watermark for queue in self._inputs})
        return list(right(self, channel, watermark))

    mutation.wrap(InputWatermarks, "take", take)


@mutant("2")
def idle_channels_count(mutation: Mutation) -> None:
    """An idle channel does not hold the watermark back."""

    def take(right: Any, self: InputWatermarks, channel: ChannelId, watermark: Watermark) -> list[Watermark]:
        return [] if watermark is IDLE else list(right(self, channel, watermark))

    mutation.wrap(InputWatermarks, "take", take)


@mutant("2")
def idle_splits_count(mutation: Mutation) -> None:
    """A split without records does not hold the watermark of its source back."""

    def check(right: Any, self: SourceWatermarks, instant_ns: int) -> list[Watermark]:
        for time in self._splits.values():
            time.was_read = True
        return list(right(self, instant_ns))

    mutation.wrap(SourceWatermarks, "check", check)


@mutant("5")
def watermarks_are_not_in_the_snapshot(mutation: Mutation) -> None:
    """The snapshot holds the watermark of each input channel."""
    snapshot_with(mutation, event_time=lambda s: None)


@mutant("5")
def splits_forget_their_watermarks(mutation: Mutation) -> None:
    """The snapshot of a source holds the watermark of each split."""
    mutation.swap(SourceWatermarks, "restore", lambda self, state: None)


@mutant("2")
def watermarks_leave_before_the_timers(mutation: Mutation) -> None:
    """The timers that a watermark passes fire before it is forwarded."""

    def advance(right: Any, self: Region, watermark: Watermark) -> None:
        timed, self.timed = self.timed, []
        right(self, watermark)
        self.timed = timed
        if isinstance(watermark, int):
            self._fire(watermark)

    mutation.wrap(Region, "advance", advance)


@mutant("2")
def watermarks_overtake_rows(mutation: Mutation) -> None:
    """A watermark leaves behind the rows that a step has emitted before it."""

    def control(
        right: Any, self: OutputPort, kind: ElementKind, checkpoint: CheckpointId, payload: bytes = b""
    ) -> None:
        gathered = self._gathered
        if kind is ElementKind.WATERMARK:
            self._gathered = []
        right(self, kind, checkpoint, payload)
        if kind is ElementKind.WATERMARK:
            self._gathered = gathered

    mutation.wrap(OutputPort, "control", control)


@mutant("2")
def watermarks_overtake_calls(mutation: Mutation) -> None:
    """A watermark waits for the asynchronous calls of the records before it."""

    def on_watermark(self: AsyncMap, watermark: Watermark) -> None:
        self.pass_watermark(watermark)

    mutation.swap(AsyncMap, "on_watermark", on_watermark)


@mutant("2")
def watermarks_leave_the_job(mutation: Mutation) -> None:
    """No watermark enters a channel to an external system, whose numbers count rows."""

    def control(
        right: Any, self: OutputPort, kind: ElementKind, checkpoint: CheckpointId, payload: bytes = b""
    ) -> None:
        partitioning = self.partitioning
        if kind is ElementKind.WATERMARK and partitioning is Partitioning.EXTERNAL:
            self.partitioning = Partitioning.FORWARD
        right(self, kind, checkpoint, payload)
        self.partitioning = partitioning

    mutation.wrap(OutputPort, "control", control)


@mutant("2")
def watermarks_are_made_by_the_real_clock(mutation: Mutation) -> None:
    """The watermark of a source is a function of its records and its log."""

    def opened(right: Any, self: TimedHead, scope: Scope) -> None:
        right(self, scope)
        self.clock = scope.context.recorder._port.now_ns  # type: ignore[attr-defined]

    def behind(right: Any, self: TimedHead, number: int, batch: Any) -> int | None:
        found = right(self, number, batch)
        return None if found is None else found - self.clock() // 1_000_000 % 20  # type: ignore[attr-defined]

    mutation.wrap(TimedHead, "open", opened)
    mutation.wrap(TimedHead, "_watermark_after", behind)


@mutant("2.2")
def sources_wait_for_the_fastest(mutation: Mutation) -> None:
    """A source may be ahead of the slowest other one by the drift."""

    def limit_drift(state: CoordinatorState) -> None:
        drift_ns, tasks = state.options.watermark_drift_max_ns, state.plan.timed_sources
        reached = [each for task in tasks if (each := sources.reached_ns(state, task)) < END_OF_TIME_NS]
        if drift_ns and reached:
            limit = DriftLimit(max(reached) + drift_ns, tasks[0], max(reached) + drift_ns)
            sources._send_to_slots(state, tasks, limit)

    mutation.swap(event_handlers, "limit_drift", limit_drift)


@mutant("2.2")
def ended_sources_hold_others_back(mutation: Mutation) -> None:
    """A source that has ended does not count among the slowest."""

    def reached_ns(right: Any, state: CoordinatorState, task: TaskId) -> int:
        found: int = right(state, task)
        return INSTANT_NS_MIN if found == END_OF_TIME_NS else found

    mutation.wrap(sources, "reached_ns", reached_ns)


@mutant("2.2")
def idle_sources_hold_others_back(mutation: Mutation) -> None:
    """A source that is idle does not count among the slowest."""

    def reached_ns(self: TimedHead) -> int:
        known = [time.reached_ns for time in self._times._splits.values()]
        return min([INSTANT_NS_MIN if each is None else each for each in known], default=END_OF_TIME_NS)

    mutation.swap(TimedHead, "reached_ns", reached_ns)

"""Settings of a windowed step: what the user gave to ``window``, checked against the stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from clonos.api.graph_errors import InvalidJob
from clonos.api.steps import GraphBuilder
from clonos.api.windows import Duration, Sliding, Tumbling, WindowKind, duration_ns
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.operator import Operator
from clonos.operators.steps.context import GIVE_TIMESTAMPS
from clonos.operators.tags import Tag
from clonos.operators.windows.gathered import Gathered
from clonos.operators.windows.grid import NANOSECONDS_PER_DAY, Grid, Spans, UtcGrid, ZoneGrid
from clonos.operators.windows.pane_windows import PaneWindows
from clonos.operators.windows.window_aggregates import window_aggregate
from clonos.operators.windows.window_rules import WindowRules


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Kind of the windows of a step, and their rules."""

    kind: WindowKind
    rules: WindowRules

    @property
    def has_times(self) -> bool:
        """Whether results have timestamps: those of windows in event time do."""
        return self.rules.is_event_time

    @property
    def ignores_order(self) -> bool:
        """Whether results do not depend on the order of records, if those of the aggregate do not."""
        return True

    @property
    def state_text(self) -> tuple[tuple[str, str], ...]:
        """Properties on which the state depends; a resume compares them."""
        window = ("window", str(self.kind))
        return (window, ("time", "event")) if self.rules.is_event_time else (window,)

    def checked_parallelism(self, step: str, parallelism: int | None) -> int | None:
        """Returns the parallelism of the step: 1 without keys.

        Raises: InvalidJob: a stream without keys is to have several tasks.
        """
        if self.rules.is_keyed:
            return parallelism
        if parallelism not in (None, 1):
            problem = f"has the parallelism {parallelism!r}, but windows without a key have one task"
            raise InvalidJob(step, problem, "Leave parallelism= out, or call key_by before window.")
        return 1

    def operators(self, aggregation: Aggregation[Any, Any], apply: Any) -> Callable[[str], Callable[[], Operator]]:
        """Returns for the name of the step the function that makes its operators."""
        spans = _spans_of(self.kind)
        if not aggregation.can_merge and (spans.panes > 1 or self.rules.lateness_ns):
            aggregation = Gathered(aggregation)
        aggregate = window_aggregate(aggregation)
        return lambda step: partial(PaneWindows, step, spans, aggregate, self.rules, apply)


def window_settings(
    stream: GraphBuilder,
    kind: Any,
    *,
    is_keyed: bool,
    lateness: Duration | None,
    late: Tag[Any] | None,
    accumulate: bool,
) -> WindowSettings:
    """Returns the settings for windows of a stream.

    Raises: InvalidJob: an argument cannot be used on this stream. InvalidDuration: ``lateness`` is no length of time.
    """
    if not isinstance(kind, WindowKind):
        raise InvalidJob("window", f"gets {kind!r:.100}", 'Give it a kind of window, such as Tumbling("5s").')
    has_times = stream._graph.have_times(stream._inputs)
    if kind.time == "event" and not has_times:
        raise InvalidJob("window", "has windows in event time on a stream without timestamps", GIVE_TIMESTAMPS)
    is_event_time = has_times and kind.time != "processing"
    if late is not None and not isinstance(late, Tag):
        raise InvalidJob("window", f"gets late={late!r:.80}", 'Give it a tag: late=Tag("late").')
    if not is_event_time and (lateness is not None or late is not None):
        advice = "Leave late= and lateness= out: by the clock of the task no record is late."
        raise InvalidJob("window", "has late records in processing time", advice)
    lateness_ns = 0 if lateness is None else duration_ns(lateness)
    tag = None if late is None else late.name
    return WindowSettings(kind, WindowRules(is_keyed, is_event_time, lateness_ns, tag, accumulate))


def _spans_of(kind: WindowKind) -> Spans:
    if isinstance(kind, Sliding):
        pane_ns = kind.pane_ns
        return Spans(_grid(kind, pane_ns), kind.size_ns // pane_ns, kind.every_ns // pane_ns)
    assert isinstance(kind, Tumbling), kind
    return Spans(_grid(kind, kind.size_ns), 1, 1)


def _grid(kind: Tumbling | Sliding, pane_ns: int) -> Grid:
    if kind.timezone is not None:
        return ZoneGrid(pane_ns // NANOSECONDS_PER_DAY, kind.offset_ns, kind.timezone)
    return UtcGrid(pane_ns, kind.offset_ns)

"""Runs one windowed step by hand: batches, watermarks, the clock, and restores in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import cloudpickle

from clonos.api.graph import JobGraph
from clonos.api.keyed_stream import KeyedStream
from clonos.api.step import Step
from clonos.api.stream import Stream
from clonos.core.model.metric_series import late_records
from clonos.core.ports.operator_chain import ChainContext
from clonos.operators.chain import Input, InputShape, Node, OperatorChain, VertexImage
from clonos.operators.operator import Operator, Times
from clonos.operators.state.keyed_state import StateImage
from tests.unit.operators.driver import Clock, Given

NEVER = 1 << 62
"""Watermark above all others."""


class Outcome(Operator):
    """Follower that keeps what it gets: (row, timestamp in ns)."""

    def __init__(self, taken: list[Any]) -> None:
        self.taken = taken

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.taken += zip(rows, times or repeat(None), strict=times is not None)

    def on_watermark(self, watermark: Any) -> None:
        pass


class Stepping:
    """One windowed step. ``results`` and ``late``: what it has emitted, with timestamps."""

    def __init__(self, step: Step, has_times: bool, form: InputShape = InputShape.PAIRS) -> None:
        assert step.make is not None
        self.results: list[Any] = []
        self.late: list[Any] = []
        self.clock = Clock()
        self._make = step.make
        nodes = (
            Node("windows", self._made, (1,), is_aligned=True, tagged=(("late", (2,)),)),
            Node("results", lambda: Outcome(self.results)),
            Node("late", lambda: Outcome(self.late)),
        )
        self._image = VertexImage("windows", nodes, (Input(0, form),))
        self._has_times = has_times
        self._snapshots: list[bytes] = []
        self._open(None)

    def _made(self) -> Operator:
        made: Operator = cloudpickle.loads(cloudpickle.dumps(self._make))()
        return made

    def _open(self, image: StateImage | None) -> None:
        self.chain: OperatorChain = self._image.new_chain()
        collector: Any = None  # there are no outputs
        context = ChainContext("windows/0", 0, 0, 1, 128, "job", 0, 1, self.clock, collector, "")
        self.chain.open(context, image, None)

    @property
    def late_count(self) -> int:
        """Number of late records."""
        return sum(late_records(self.clock.metric_table.families()).values())

    def rows(self, rows: Sequence[Any]) -> None:
        """Gives a batch: ((key, value), timestamp in ns), or (key, value) if the stream has no timestamps; the key in
        place of (key, value) for ``InputShape.KEYS``."""
        if self._has_times:
            self.chain.process_rows(0, [row for row, _ in rows], [time_ns for _, time_ns in rows])
        else:
            self.chain.process_rows(0, list(rows))

    def watermark(self, watermark_ns: int) -> None:
        self.chain.advance_watermark(watermark_ns)

    def pass_time(self, to_ns: int) -> None:
        """Sets the clock and fires what is due."""
        self.clock.now_ns = to_ns
        due_ns = self.chain.next_timer_ns()
        if due_ns is not None and due_ns <= to_ns:
            self.chain.fire_timers(to_ns)

    def snapshot(self, full: bool) -> None:
        """Takes a snapshot."""
        is_full = full or not self._snapshots
        changes = self.chain.snapshot(1, is_full).changes
        self._snapshots = [changes] if is_full else [*self._snapshots, changes]

    def restore(self) -> None:
        """Takes a snapshot and goes on with a new operator that is restored from all of them."""
        self.snapshot(full=False)
        self.chain.close()
        image = StateImage()
        for changes in self._snapshots:
            image.apply(changes)
        self._open(image)

    def resume(self, build: Callable[[KeyedStream[Any, Any]], Stream[Any]]) -> None:
        """Takes a snapshot and goes on with the step that ``build`` adds, as a resumed job does."""
        self._make = _step_of(build, has_times=True).make  # type: ignore[assignment]
        self.restore()

    def end(self) -> None:
        self.chain.end_of_input()

    def state(self) -> dict[str, Any]:
        """Returns the tables that have entries."""
        image = StateImage()
        image.apply(self.chain.snapshot(2, True).changes)
        return {name: entries for name, entries in image.tables.items() if entries}


def stepping(
    build: Callable[[KeyedStream[Any, Any]], Stream[Any]],
    *,
    has_times: bool = True,
    form: InputShape = InputShape.PAIRS,
) -> Stepping:
    """Runs the windowed step that ``build`` adds to a keyed stream of (key, value), or of keys."""
    return Stepping(_step_of(build, has_times), has_times, form)


def _step_of(build: Callable[[KeyedStream[Any, Any]], Stream[Any]], has_times: bool) -> Step:
    graph = JobGraph("job")
    records = graph.source(Given([]), timestamps=(lambda row: row) if has_times else None)
    build(records.key_by(lambda row: row[0]))
    step = graph.steps[-1]
    assert step.kind.startswith("window_")
    return step


def unkeyed_stepping(build: Callable[[Stream[Any]], Stream[Any]], *, has_times: bool = True) -> Stepping:
    """Runs the windowed step that ``build`` adds to a stream without keys."""
    graph = JobGraph("job")
    build(graph.source(Given([]), timestamps=(lambda row: row) if has_times else None))
    return Stepping(graph.steps[-1], has_times)


def cut(items: Sequence[Any], sizes: Iterable[int]) -> list[Sequence[Any]]:
    """Cuts items into batches of the given sizes, repeated."""
    found: list[Sequence[Any]] = []
    place, widths = 0, list(sizes) or [1]
    while place < len(items):
        width = widths[len(found) % len(widths)]
        found.append(items[place : place + width])
        place += width
    return found

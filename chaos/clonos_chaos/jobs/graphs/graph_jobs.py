"""Fuzz jobs of random graphs: one to three sources, one to four steps of windows, joins and choices, late records.

In an exact job no record is late, and the twin says which rows come out. A job with late records, from disorder beyond
the lag of its watermarks and from splits that are idle for a while, has steps that let each row through once: on time
and late together are the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial, reduce
from random import Random
from typing import Any, ClassVar, Final

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos_chaos.jobs.api_jobs import ApiJob, Immediate, Parts
from clonos_chaos.jobs.graphs.graph_choices import (
    Branching,
    Deduplicating,
    FoldedRows,
    MergedBranches,
    RankedRows,
    Totalling,
)
from clonos_chaos.jobs.graphs.graph_joins import AsOf, Broadcasting, ConnectedBranches, Joining, LookingUp
from clonos_chaos.jobs.graphs.graph_rows import GraphSource, GraphStep, Item, Row, in_turn, same
from clonos_chaos.jobs.graphs.graph_windows import ByTheClock, Passing, Totals, Windowing

Maker = Callable[[int, Random], GraphStep]

ITEMS_MAX: Final = 600
"""Rows beyond which a step that multiplies them is left out."""

EXACT: Final[tuple[Maker, ...]] = (
    Windowing,
    Windowing,
    Totals,
    Joining,
    Joining,
    AsOf,
    LookingUp,
    Broadcasting,
    ConnectedBranches,
    partial(MergedBranches, is_exact=True),
    partial(Deduplicating, is_exact=True),
)
"""Steps whose results follow from the timestamps."""

PASSING: Final[tuple[Maker, ...]] = (
    Passing,
    Passing,
    Passing,
    LookingUp,
    Broadcasting,
    ConnectedBranches,
    partial(MergedBranches, is_exact=False),
    partial(Deduplicating, is_exact=False),
)
"""Steps that let each row through once, on time or late."""

LAST: Final[tuple[Maker, ...]] = (FoldedRows, ByTheClock)
EXACT_LAST: Final[tuple[Maker, ...]] = (RankedRows, Totalling, *LAST)
"""Steps whose results have no timestamps."""

Output = tuple[int, tuple[()], Row, bool]
"""Row at a sink: number, no lineage, row, and whether it is late."""


class GraphJob(ApiJob):
    """Job of a random graph."""

    late_share: ClassVar[float] = 0.3
    """Share of the jobs in which records may be late."""

    counts_rows: ClassVar[bool] = False

    def _build(self, graph: JobGraph, rng: Random) -> None:
        self.is_late = rng.random() < self.late_share
        count = rng.choice((1, 2, 2, 3))
        self.sources = [GraphSource(n, self.records // count, rng, is_late=self.is_late) for n in range(count)]
        self._side = self.sources.pop() if count > 1 and rng.random() < 0.5 else None
        self._items: list[Item] = [item for source in self.sources for item in source.items()]
        self.wanted = Counter(row for row, _ in self._items)
        self.steps: list[GraphStep] = []
        self._draw_steps(rng)
        rows, late = self._streams(graph, rng), list[Stream[Row]]()
        for step in self.steps:
            if rng.random() < 0.1:
                rows = rows.map_async(same, capacity=rng.choice((1, 4)), ordered=rng.random() < 0.5)
            if rng.random() < 0.05:
                rows = rows.key_by(lambda row: row[0] % 3).stateful_map_async(in_turn, capacity=rng.choice((1, 4)))
            rows = step.build(rows, late)
        sinks: list[Any] = rng.sample((Immediate(), Parts()), 2)
        rows.map(partial(_output, False)).sink(sinks[0])
        if late:
            union = late[0].union(*late[1:]) if len(late) > 1 else late[0]
            union.map(partial(_output, True)).sink(sinks[1])

    def _draw_steps(self, rng: Random) -> None:
        """Draws the steps, and computes the results with them."""
        is_exact = not self.is_late
        for stage in range(1, rng.choice((1, 2, 3, 4)) + 1):
            is_exact = is_exact and rng.random() < 0.85
            step = self._drawn(stage, rng, EXACT if is_exact else PASSING)
            if step.uses_rights and self._side is not None:
                step.right_items = self._side.items()
            found = step.twin(self._items)
            if len(found) <= ITEMS_MAX:
                self._items = found
                self.steps.append(step)
        if rng.random() < 0.25 or not self.steps:
            self.steps.append(rng.choice(EXACT_LAST if is_exact else LAST)(9, rng))
            self._items = self.steps[-1].twin(self._items)
        if not self.is_late:
            self.wanted = Counter(row for row, _ in self._items)

    def _drawn(self, stage: int, rng: Random, makers: tuple[Maker, ...]) -> GraphStep:
        if rng.random() < 0.15:
            inner = [rng.choice(makers)(stage * 10 + n, rng) for n in range(rng.choice((0, 1, 1, 2)))]
            if not any(step.uses_rights for step in inner):
                return Branching(stage, rng, inner)
        return rng.choice(makers)(stage, rng)

    def _streams(self, graph: JobGraph, rng: Random) -> Stream[Row]:
        """Adds the sources; those of the rows are united or merged, another one is the second input of steps."""
        found = [source.deduplicated(source.stream(graph, rng), rng) for source in self.sources]
        if self._side is not None:
            rights = self._side.deduplicated(self._side.stream(graph, rng), rng)
            users = [step for step in self.steps if step.uses_rights]
            for step in users:
                step.rights = rights
            if not users:  # nobody reads it
                rights.filter(_is_nothing).map(partial(_output, False)).sink(Parts())
        if len(found) > 1 and not self.is_late and rng.random() < 0.3:
            return found[0].merge_ordered(*found[1:])
        return reduce(lambda first, second: first.union(second), found)

    def complaints_of_rows(self, rows: Iterable[Any]) -> list[str]:
        """Returns how the rows at the sinks differ from those of the twin, or from the input if some are late."""
        on_time: Counter[Row] = Counter()
        late: Counter[Row] = Counter()
        for _, _, row, is_late in rows:
            (late if is_late else on_time)[row] += 1
        found = []
        if self.is_late:
            on_time += late
        else:
            found += [f"{row} is late" for row in late]
        missing, strange = self.wanted - on_time, on_time - self.wanted
        if missing or strange:
            steps = [type(step).__name__ for step in self.steps]
            found.append(f"{steps}: missing {dict(missing)}, strange {dict(strange)}")
        return found


class LateGraphJob(GraphJob):
    """Job of a random graph in which records may be late."""

    late_share: ClassVar[float] = 1


def _output(is_late: bool, row: Row) -> Output:
    return row[0], (), row, is_late


def _is_nothing(row: Row) -> bool:
    return False

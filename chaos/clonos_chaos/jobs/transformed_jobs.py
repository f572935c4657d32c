"""Fuzz jobs of transformations: routing, duplicates, folds, limits, calls side by side and flushes, each of which lets
every row through once.

Rows are doubled and deduplicated, or follow a wrong row that raises and leaves no state. Folds gather rows, and what
they emit again and again is deduplicated too. So a row that a restored step has forgotten, or passes on twice, is
missing or too much in the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar

from clonos.api.emission import at_end, changes, each, every
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.operators.emission_times import Emission
from clonos.operators.state.state_descriptors import ListState, MapState
from clonos_chaos.jobs.api_jobs import (
    ApiJob,
    CountPerKey,
    FuzzPartsWriter,
    Immediate,
    Offsets,
    Parts,
    Row,
    stage_of_row,
)
from clonos_chaos.jobs.fuzz_chain import KEYS
from clonos_chaos.jobs.fuzz_jobs import next_of
from clonos_services import clock

UNREAD = 30
"""How many times more records a source has that is ended by a limit in another task."""

CALLED_STAGE = 5
"""Stage of the calls that run side by side."""

SPAN = "10min"
"""Length of time that no world lasts."""


class Unwritten(Parts):
    """Sink that drops its rows; for the error output."""

    def writer(self) -> UnwrittenRows:
        return UnwrittenRows()


class UnwrittenRows(FuzzPartsWriter):
    """Writer that prepares nothing."""

    def prepare(self, checkpoint: int) -> None:
        pass


class Corrected:
    """Passes on the first row of each offset, some of them by a timer, and raises at wrong rows after all changes.

    If a change of a wrong row stays, its correction is missing in the output, or a row comes out twice.
    """

    offsets = MapState[int, bool]("offsets")
    held = ListState[Row]("held")

    def process(self, given: tuple[bool, Row], context: Any) -> None:
        is_wrong, row = given
        offsets = context.state(self.offsets)
        if offsets.get(row[0]):
            return
        offsets[row[0]] = True
        context.state(self.held).append(row)
        if row[0] % 3 == 0 and not is_wrong:
            context.set_timer(clock.time() + 0.01)
        else:
            self.on_timer(None, context)
        if is_wrong:
            context.set_timer(clock.time() + 0.001)
            raise ValueError("this row is wrong")

    def on_timer(self, timestamp: Any, context: Any) -> None:
        held = context.state(self.held)
        for row in held:
            context.emit(row)
        held.clear()


class TransformedJob(ApiJob):
    """Job of transformations; the twin is the offsets up to the limit."""

    ends_late: ClassVar[bool] = False
    highest = 0
    """Highest offset that has reached the first step."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        aside = Random(next_of(rng))
        self.limit = rng.randint(1, self.records) if self.ends_late or rng.random() < 0.5 else None
        if self.limit and (self.ends_late or rng.random() < 0.5):
            endless: Stream[Row] = graph.source(Offsets(self.records * UNREAD), parallelism=1).shuffle()
            rows = endless.map(partial(self._observed, rng), parallelism=1).limit(self.limit)
        elif self.limit and aside.random() < 0.5:  # with open calls in front of the limit, in the task of the source
            rows = self._called(graph.source(Offsets(self.records), parallelism=1), aside, parallelism=1)
            rows = rows.limit(self.limit)
        else:
            tasks = None if self.limit else rng.choice((1, 2))
            rows = graph.source(Offsets(self.records), parallelism=tasks, limit=self.limit)
            if aside.random() < 0.4:
                rows = self._called(rows, aside, parallelism=aside.choice((1, 2)))
            rows = self._routed(rows, rng).map(partial(stage_of_row, 1, rng, None), parallelism=rng.choice((1, 2)))
        doubled = self._routed(rows.flat_map(_twice), rng).map(_same, parallelism=rng.choice((1, 2, 3)))
        rows = self._deduplicated(doubled, rng)
        if self.records % 3 == 0:  # not drawn, so that a seed still gives its job
            graph.errors = Unwritten()
            rows = rows.flat_map(_wrong_first).key_by(_key_of_given).process(Corrected)
        if rng.random() < 0.5:
            rows = rows.key_by(_key).process(CountPerKey(2, rng.choice((0, 15))))
        if rng.random() < 0.7:
            rows = self._folded(rows, rng)
        last = rows.map(partial(stage_of_row, 4, rng, None))
        if rng.random() < 0.5 and graph.errors is None:  # all sinks of a job are of one kind
            last.sink(Immediate(), flush=aside.choice((None, each(1), each(5), every("20ms"), at_end())))
        else:
            first, rest = last.split(_is_even)
            first.union(rest).sink(Parts(), flush=aside.choice((None, each(1), each(5), at_end())))

    def _observed(self, rng: Random, row: Row) -> Row:
        self.highest = max(self.highest, row[0])
        return stage_of_row(1, rng, None, row)

    def _called(self, rows: Stream[Row], aside: Random, parallelism: int) -> Stream[Row]:
        """Passes each row through calls that run side by side, in one of three kinds of steps."""
        par = aside.choice((1, 3, 8))
        match aside.randrange(3):
            case 0:
                return rows.map(self._answered, par=par, parallelism=parallelism)
            case 1:
                return rows.flat_map(self._answered_once, par=par, parallelism=parallelism)
            case _:
                return rows.filter(self._answered, par=par, parallelism=parallelism)

    def _answered(self, row: Row, idempotency_key: str = "") -> Row:
        offset, lineage = row
        answer = self.service.ask((CALLED_STAGE, offset), idempotency_key)
        return offset, (*lineage, (CALLED_STAGE, 0, offset * 8, 0, 0, answer))

    def _answered_once(self, row: Row, idempotency_key: str = "") -> list[Row]:
        return [self._answered(row, idempotency_key)]

    def expected(self) -> Sequence[int]:
        """Returns the offsets that must come out."""
        return range(self.records if self.limit is None else self.limit)

    def _routed(self, rows: Stream[Row], rng: Random) -> Stream[Row]:
        match rng.randrange(6):
            case 0:
                return rows.shuffle()
            case 1:
                return rows.rescale()
            case 2:
                return rows.global_()
            case 3:
                return rows.partition_custom(_task_of, _key)
            case _:
                return rows

    def _deduplicated(self, rows: Stream[Row], rng: Random) -> Stream[Row]:
        match rng.randrange(4):
            case 0:
                return rows.deduplicate(_offset, within=SPAN)
            case 1:
                return rows.deduplicate(_offset, keep="last", within=SPAN)
            case 2:
                return rows.key_by(_key).deduplicate(_offset)
            case _:
                return rows.distinct(_offset)

    def _folded(self, rows: Stream[Row], rng: Random) -> Stream[Row]:
        emit: Emission = rng.choice((each(1), each(4), every("20ms"), changes(), at_end()))
        if rng.random() < 0.5:
            gathered: Stream[Any] = rows.key_by(_key).fold([], list.append, emit=emit).map(_second)
        else:
            gathered = rows.fold([], list.append, emit=emit)
        return gathered.flat_map(list).deduplicate(_offset)


class EndedJob(TransformedJob):
    """Job whose source has far more records than the limit in another task lets through, and is ended by it."""

    ends_late: ClassVar[bool] = True


def _same(row: Row) -> Row:
    return row


def _twice(row: Row) -> list[Row]:
    return [row, row]


def _wrong_first(row: Row) -> list[tuple[bool, Row]]:
    return [(True, row), (False, row)]


def _key_of_given(given: tuple[bool, Row]) -> int:
    return _key(given[1])


def _offset(row: Row) -> int:
    return row[0]


def _key(row: Row) -> int:
    return row[0] % KEYS


def _second(pair: tuple[int, list[Row]]) -> list[Row]:
    return pair[1]


def _task_of(key: int, tasks: int) -> int:
    return key * 7 % tasks


def _is_even(row: Row) -> bool:
    return row[0] % 2 == 0

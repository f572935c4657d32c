"""Fuzz jobs with joins and connected streams, which let every row through once.

Rows are joined with some of themselves. The dumb twin knows from offsets and timestamps alone which rows have a match.
After a split that was idle a row may be late: it leaves by the side output, and its partners may lack it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from clonos.api.common import Common
from clonos.api.graph import JobGraph
from clonos.api.joining.joins import joined_step, keyed_sides
from clonos.api.step import StepInput
from clonos.api.steps import GraphBuilder
from clonos.api.stream import Stream
from clonos.core.model.watermark import Activity, Watermark
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.joins.join_facts import join
from clonos.operators.joins.match_rules import Between, How, MatchRule, SameWindow
from clonos.operators.operator import Operator, Times
from clonos.operators.state.state_descriptors import MapState, ValueState
from clonos.operators.tags import Tag
from clonos_chaos.jobs.api_jobs import Immediate, Parts, Row
from clonos_chaos.jobs.fuzz_chain import KEYS
from clonos_chaos.jobs.timed_jobs import TimedJob, key_of_row, timestamp_of

LATE: Final = Tag[Any]("late")
JOIN_STAGE, CONNECT_STAGE = 1, 2
MATCHED, ALONE, WAS_LATE = "matched", "alone", "late"


class NumberedMerge:
    """Process function of two inputs: numbers the rows of a key, and delays every third by an event-time timer."""

    seen = ValueState[int]("seen", default=0)
    held = ValueState[list[Row]]("held", default=[])

    def process_first(self, row: Row, context: Any) -> None:
        self._take(row, context)

    def process_second(self, row: Row, context: Any) -> None:
        self._take(row, context)

    def _take(self, row: Row, context: Any) -> None:
        seen = context.state(self.seen)
        seen.value += 1
        offset, lineage = row
        row = offset, (*lineage, (CONNECT_STAGE, 0, seen.value, 0, 0, 0))
        if seen.value % 3:
            context.emit(row)
            return
        held = context.state(self.held)
        held.value = [*held.value, row]
        context.set_event_timer(2_000_000_000)

    def on_event_timer(self, timestamp: Any, context: Any) -> None:
        held = context.state(self.held)
        for row in held.value:
            context.emit(row)
        held.value = []


class Ruled:
    """Process function with broadcast state: passes on each row, and counts the rules, which are rows too."""

    rules = MapState[int, int]("rules")

    def process_first(self, row: Row, context: Any) -> None:
        offset, lineage = row
        known = len(context.broadcast_state(self.rules))
        context.emit((offset, (*lineage, (CONNECT_STAGE, known, offset * 8, 0, 0, 0))))

    def process_second(self, row: Row, context: Any) -> None:
        context.broadcast_state(self.rules)[row[0]] = 1


class TimestampOperator(Operator):
    """Gives rows the timestamps that the watermarks of the source are for."""

    @classmethod
    def facts(cls, given: KnownInputs, job: TimedJob) -> Facts:
        """Returns those for a job."""
        return replace(facts_of(partial(cls, job), given), has_times=True)

    def __init__(self, job: TimedJob) -> None:
        self._job = job

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows(rows, [timestamp_of(offset, self._job.disorder_ns) for offset, _ in rows])

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._job.reach(0, watermark)
        self.out.on_watermark(watermark)


class JoinedJob(TimedJob):
    """Job with a join, and perhaps connected streams after it."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        source = self._timed_rows(graph, rng)._inputs
        stamped = graph.add("stamp", source, {}, partial(TimestampOperator.facts, job=self))
        rows: Stream[Row] = Stream(graph, (StepInput(stamped.number),))
        self._every = rng.choice((1, 2, 3))
        self._shift = rng.choice((0, 0, 3))
        self._is_unique = self.sleeps or rng.random() < 0.5  # a left row has at most one match
        lefts, rights = rows.map(_left), rows.filter(partial(_is_right, self._every)).map(_right)
        on = (_left_key, partial(_right_key, self._shift)) if self._is_unique else (_left_group, _right_group)
        self._rule: MatchRule = SameWindow(rng.choice((20, 50, 130)))
        if rng.random() < 0.7:
            lower_ns = rng.choice((-60, -20, 0, 15))
            self._rule = Between(lower_ns, lower_ns + rng.choice((0, 10, 70)))
        sides = keyed_sides(lefts, rights, on, "join")
        common = Common(parallelism=rng.choice((1, 2)))
        if self._is_unique:
            joined = self._joined(sides, How.LEFT, _selected, common)
            found: Stream[Row] = joined.union(joined.side_output(LATE).filter(_is_left).map(_late))
        else:
            semi, anti = (self._joined(sides, how, None, common) for how in (How.SEMI, How.ANTI))
            found = semi.map(partial(_marked, MATCHED)).union(anti.map(partial(_marked, ALONE)))
            found = found.union(semi.side_output(LATE).filter(_is_left).map(_late))
        match rng.randrange(3):
            case 0:
                odd, even = (found.filter(partial(_has_parity, parity)).key_by(key_of_row) for parity in (1, 0))
                found = odd.connect(even).process(NumberedMerge, parallelism=rng.choice((1, 2)))
            case 1:
                found = found.connect(rights.broadcast()).process(Ruled, parallelism=rng.choice((1, 2)))
        found.sink(Immediate()) if rng.random() < 0.5 else found.sink(Parts())

    def _joined(self, sides: tuple[GraphBuilder, GraphBuilder], how: How, select: Any, common: Common) -> Stream[Any]:
        """Adds a join with bounds in nanoseconds, which the API does not take."""
        definition = partial(
            join, rule=self._rule, match=str(self._rule), how=how, select=select, late=LATE.name, is_timed=True
        )
        return Stream(sides[0]._graph, joined_step(*sides, "join", definition, common))

    def has_match(self, offset: int) -> bool:
        """Returns whether a row has a match, by the twin."""
        return any(self._matches(offset, other) for other in range(0, self.records, self._every))

    def _matches(self, left: int, right: int) -> bool:
        has_key = right + self._shift == left if self._is_unique else left % KEYS == right % KEYS
        left_ns, right_ns = timestamp_of(left, self.disorder_ns), timestamp_of(right, self.disorder_ns)
        if isinstance(self._rule, SameWindow):
            return has_key and left_ns // self._rule.size_ns == right_ns // self._rule.size_ns
        assert isinstance(self._rule, Between)
        return has_key and self._rule.lower_ns <= right_ns - left_ns <= self._rule.upper_ns

    def complaints_of_rows(self, rows: Iterable[Row]) -> list[str]:
        """Returns which visible rows left the join otherwise than those of the twin."""
        found = []
        for offset, lineage, *_ in rows:
            kind = lineage[0][3][0]
            if kind == WAS_LATE and not self.sleeps:
                found.append(f"offset {offset} is late")
            has_match = self.has_match(offset)
            if (kind == MATCHED and not has_match) or (kind == ALONE and has_match and not self.sleeps):
                found.append(f"offset {offset} left the join {kind}, and the twin says the contrary")
        return found


def _left(row: Row) -> Any:
    return ("left", row)


def _right(row: Row) -> Any:
    return ("right", row)


def _is_right(every: int, row: Row) -> bool:
    return row[0] % every == 0


def _is_left(sided: Any) -> bool:
    return bool(sided[0] == "left")


def _has_parity(parity: int, row: Row) -> bool:
    return row[0] % 2 == parity


def _left_key(sided: Any) -> int:
    return int(sided[1][0])


def _right_key(shift: int, sided: Any) -> int:
    return int(sided[1][0]) + shift


def _left_group(sided: Any) -> int:
    return int(sided[1][0]) % KEYS


_right_group = _left_group


def _marked(kind: str, sided: Any) -> Row:
    offset, lineage = sided[1]
    return offset, (*lineage, (JOIN_STAGE, 0, offset * 8, (kind,), 0, 0))


def _late(sided: Any) -> Row:
    return _marked(WAS_LATE, sided)


def _selected(left: Any, right: Any) -> Row:
    return _marked(ALONE if right is None else MATCHED, left)

"""Fuzz jobs in event time: sources with watermarks, and windows that show when they fired and with how many rows.

The dumb twin is a function of the offsets alone: it knows each row's windows and how many rows share them, whatever the
order of arrival. Only after a split that was idle may a row be late; it then leaves at once and shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from clonos.api.graph import JobGraph
from clonos.api.step import StepInput
from clonos.api.steps import GraphBuilder
from clonos.api.stream import Stream
from clonos.core.model.ids import TaskId
from clonos.core.model.watermark import Activity, Watermark
from clonos.core.values import decode_value, encode_value
from clonos.core.values.keys import state_key
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.state.state_spec import StateScope, StateSpec, keyed, small
from clonos.operators.state.timers import Timers, timer_spec
from clonos_chaos.jobs.api_jobs import ApiJob, Immediate, Parts, Row
from clonos_chaos.jobs.fuzz_chain import KEYS, Disorder

FIRST_NS = -200
"""Timestamp of the first record, before the Unix epoch: instants may be negative."""

STEP_NS = 10
POLLS_PER_RECORD = 30
"""Polls after which a waiting split gives one more record, so that its watermark goes on while another one sleeps."""

FIRED, LATE = "fired", "late"


def timestamp_of(offset: int, disorder_ns: int) -> int:
    """Returns the timestamp of a record, which lags behind those of earlier ones by less than ``disorder_ns``."""
    return FIRST_NS + offset * STEP_NS - offset * 37 % disorder_ns


def key_of_row(row: Row) -> int:
    """Returns the key of a row."""
    return row[0] % KEYS


class TimedOffsets:
    """Source of ``(offset, ())``. Split s of n has the offsets s, s + n, ... Those below ``sleeping`` sleep halfway."""

    def __init__(self, job: TimedJob, splits_per_task: int, every_ns: int, idle_after_ns: int) -> None:
        self.job = job
        self.splits_per_task = splits_per_task
        self.watermark_every_ns, self.idle_after_ns = every_ns, idle_after_ns

    def splits(self, parallelism: int) -> list[bytes]:
        self.job.sources = parallelism
        count = parallelism * self.splits_per_task
        return [encode_value((first, count)) for first in range(count)]

    def reader(self) -> TimedReader:
        return TimedReader(self.job)

    def watermark(self, before_ns: int | None, records: Iterable[Row]) -> int | None:
        """The next record of the split has a greater offset, and lags by less than the disorder."""
        latest = max(offset for offset, _ in records)
        return FIRST_NS + (latest + 1) * STEP_NS - self.job.disorder_ns


class TimedReader:
    """Reader of one split."""

    def __init__(self, job: TimedJob) -> None:
        self._job = job
        self._polls = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        found: Any = decode_value(split)
        self._first, self._stride = found
        self._next = self._first if mark is None else int(mark)

    def read(self, records_max: int) -> list[Row] | None:
        end = self._job.released(self._first, self._stride)
        found = [(offset, ()) for offset in range(self._next, end, self._stride)][:records_max]
        self._next += len(found) * self._stride
        if found:
            return found
        if self._next >= self._job.records:
            self._job.end(self._first)
            return None
        self._polls += 1
        if self._polls % POLLS_PER_RECORD == 0:
            self._job.release(self._first, self._stride)
        return []

    def mark(self) -> bytes:
        return str(self._next).encode()

    def close(self) -> None:
        pass


class Fired(NamedTuple):
    """Entry of a window in the lineage of a row: when and why the row left, and how many rows left with it."""

    kind: str
    watermark_ns: int | None  # of the step, just before
    end_ns: int
    size: int


EVENT_TIMERS: Final = timer_spec("event timers")
WINDOWS: Final = keyed("windows", key_place=(0, 1))
REACHED: Final = small("reached", StateScope.EQUAL)
"""Table with the watermark, 0, and the name of the activity, 1."""


class EventWindows(Operator):
    """Event-time windows over (key, row): a row leaves with its window, or at once if it is late."""

    has_event_timers: ClassVar[bool] = True

    def __init__(self, step: str, stage: int, size_ns: int, job: TimedJob) -> None:
        self._step, self._stage, self._size_ns, self._job = step, stage, size_ns, job

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return EVENT_TIMERS, WINDOWS, REACHED

    def open(self, scope: Scope) -> None:
        self._timers = Timers(EVENT_TIMERS, scope.state)
        self._windows = scope.state.table(WINDOWS)
        self._reached = scope.state.table(REACHED)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        late = []
        reached_ns = self._reached.entries.get(0)
        for key, row in rows:
            end_ns = self._job.window_end(row, self._size_ns)
            if reached_ns is not None and end_ns <= reached_ns:
                late.append(self._left(row, LATE, end_ns, 1))
                continue
            entry = state_key((end_ns, key))
            self._windows.set(entry, [*self._windows.entries.get(entry, ()), row])
            self._timers.set(end_ns, key)
        if late:
            self.out.rows(late)

    def _left(self, row: Row, kind: str, end_ns: int, size: int) -> Row:
        offset, lineage = row
        came_from = lineage[-1][0] if lineage else 0
        fired = Fired(kind, self._reached.entries.get(0), end_ns, size)
        return offset, (*lineage, (self._stage, 0, offset * 8 + came_from, tuple(fired), 0, 0))

    def next_event_ns(self) -> int | None:
        return self._timers.next_ns()

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return self._timers.due(until_ns)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            if self._timers.take(timer):
                end_ns, _, key = timer.token
                entry = state_key((end_ns, key))
                rows = self._windows.entries[entry]
                self._windows.delete(entry)
                self.out.rows([self._left(row, FIRED, end_ns, len(rows)) for row in rows])

    def on_watermark(self, watermark: Watermark) -> None:
        reached_ns, was = self._reached.entries.get(0), self._reached.entries.get(1)
        if isinstance(watermark, Activity):
            if watermark.name == (was or Activity.ACTIVE.name):
                raise Disorder(f"{self._step} is {watermark.name} twice")
            self._reached.set(1, watermark.name)
        elif reached_ns is not None and watermark <= reached_ns:
            raise Disorder(f"the watermark of {self._step} fell from {reached_ns} to {watermark}")
        else:
            self._reached.set(0, watermark)
            self._job.reach(self._stage, watermark)
        self.out.on_watermark(watermark)


class EventStream(GraphBuilder):
    """Stream to which event-time windows can be added."""

    @classmethod
    def of(cls, stream: GraphBuilder) -> EventStream:
        """Returns the same stream."""
        return cls(stream._graph, stream._inputs)

    def windows(
        self,
        stage: int,
        size_ns: int,
        job: TimedJob,
        parallelism: int,
        kind: type[EventWindows] = EventWindows,
    ) -> Stream[Row]:
        """Adds windows to a keyed stream."""

        def facts(given: KnownInputs) -> Facts:
            return facts_of(partial(kind, given.step, stage, size_ns, job), given)

        step = self._graph.add("event windows", self._inputs, {"parallelism": parallelism}, facts)
        return Stream(self._graph, (StepInput(step.number),))


class TimedJob(ApiJob):
    """Job in event time. Split 0 of the source, and the others of its task, may sleep until the others went ahead."""

    sleeps_for_sure: ClassVar[bool] = False
    sources_min: ClassVar[int] = 1

    def _build(self, graph: JobGraph, rng: Random) -> None:
        rows = self._timed_rows(graph, rng)
        self._sizes = [rng.choice((20, 50, 130)) for _ in range(rng.choice((2, 2, 3)))]
        for stage, size_ns in enumerate(self._sizes, 1):
            if rng.random() < 0.3:
                rows = rows.map_async(_same, capacity=rng.choice((1, 4)), ordered=rng.random() < 0.5)
            keyed = EventStream.of(rows.key_by(key_of_row))
            rows = keyed.windows(stage, size_ns, self, rng.choice((1, 2)))
        rows.sink(Immediate()) if rng.random() < 0.5 else rows.sink(Parts())

    def _timed_rows(self, graph: JobGraph, rng: Random) -> Stream[Row]:
        """Adds the source, and perhaps a task after it."""
        self.disorder_ns = rng.choice((1, 25, 60))
        self.sources = 1  # tasks of the source, set when its splits are listed
        self.sleeps = self.sleeps_for_sure or rng.random() < 0.3
        self.was_held_back = False
        self._ahead_ns: dict[int, int] = {}  # highest watermark of each stage
        self._released: dict[int, int] = {}  # end of what each split has given, by its first offset
        self._is_awake = not self.sleeps
        self._splits_per_task = rng.choice((1, 2, 3))
        source = TimedOffsets(self, self._splits_per_task, rng.choice((1, 1, 35)), 20_000_000 if self.sleeps else 0)
        rows: Stream[Row] = graph.source(
            source, parallelism=2 if self.sleeps else max(self.sources_min, rng.choice((1, 2, 3)))
        )
        if rng.random() < 0.3 or self.sources_min > 1:  # a task that passes rows and watermarks on at once
            rows = rows.rebalance().map(_same, parallelism=rng.choice((1, 2)))
        return rows

    # --- timestamps

    def timestamp_ns(self, offset: int) -> int:
        """Returns the timestamp of a record."""
        return timestamp_of(offset, self.disorder_ns)

    def window_end(self, row: Row, size_ns: int) -> int:
        """Returns the end of a row's window: a row that left a window has the window's end less 1 ns."""
        offset, lineage = row
        windows = [entry[3] for entry in lineage if isinstance(entry[3], tuple)]
        timestamp_ns = windows[-1][2] - 1 if windows else self.timestamp_ns(offset)
        return (timestamp_ns // size_ns + 1) * size_ns

    # --- sleeping splits

    def released(self, first: int, stride: int) -> int:
        """Returns the end of what a split gives now; never less than it gave before."""
        if self._is_awake:
            self._released[first] = self.records
        half = self.records // 2 if first % self.sources == 0 else self.records * 3 // 4
        return self._released.setdefault(first, half)

    def release(self, first: int, stride: int) -> None:
        """Lets a waiting split give one more record, unless it sleeps; when there is none left, all wake up."""
        if first % self.sources == 0 or self._is_awake:
            return
        if self._released[first] + stride < self.records:
            self._released[first] += stride
        else:
            self.was_held_back = self._is_awake = True

    def end(self, first: int) -> None:
        """Notes that a split has ended. All wake up after the end of a split that does not sleep: from then on only the
        sleeping ones are open, and their watermark stands."""
        self._is_awake = self._is_awake or first % self.sources != 0

    def reach(self, stage: int, watermark_ns: int) -> None:
        """Notes the watermark of a stage. All wake up when it shows that the sleeping splits are idle."""
        self._ahead_ns[stage] = max(watermark_ns, self._ahead_ns.get(stage, watermark_ns))
        asleep_from = self.records // 2
        if self._ahead_ns[stage] > FIRST_NS + (asleep_from + 2 * self.sources * self._splits_per_task) * STEP_NS:
            self._is_awake = True

    # --- the twin

    def twin(self) -> dict[int, list[tuple[int, int]]]:
        """Returns the windows of each offset: (end, how many rows of its key share it) per stage."""
        rows: list[Row] = [(offset, ()) for offset in range(self.records)]
        windows: dict[int, list[tuple[int, int]]] = {offset: [] for offset in range(self.records)}
        for stage, size_ns in enumerate(self._sizes, 1):
            ends = {row[0]: self.window_end(row, size_ns) for row in rows}
            counted = Counter((row[0] % KEYS, ends[row[0]]) for row in rows)
            left = []
            for offset, lineage in rows:
                end_ns = ends[offset]
                count = counted[offset % KEYS, end_ns]
                windows[offset].append((end_ns, count))
                left.append((offset, (*lineage, (stage, 0, 0, (FIRED, None, end_ns, count), 0, 0))))
            rows = left
        return windows

    def complaints_of_rows(self, rows: Iterable[Row]) -> list[str]:
        """Returns how the windows of visible rows differ from those of the twin."""
        found = []
        twin = self.twin()
        for offset, lineage, *_ in rows:
            windows = [Fired(*entry[3]) for entry in lineage]
            for window in windows:
                is_late = window.watermark_ns is not None and window.watermark_ns >= window.end_ns
                if (window.kind == LATE) is not is_late:
                    found.append(f"offset {offset} {window.kind} though the watermark was {window}")
            if any(window.kind == LATE for window in windows):
                if not self.sleeps:
                    found.append(f"offset {offset} is late: {windows}")
            elif not self.sleeps and [(window.end_ns, window.size) for window in windows] != twin[offset]:
                found.append(f"offset {offset} left {windows} instead of {twin[offset]}")
        return found

    def complaints(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """Returns that an idle split has held the watermark back, where it is sure that it should not have."""
        if self.sleeps_for_sure and self.was_held_back:
            return ["an idle split has held the watermark back"]
        return super().complaints(alarms, exposed)


class MergingJob(TimedJob):
    """Job in event time whose windows have several inputs."""

    sources_min: ClassVar[int] = 2


class SleepingJob(TimedJob):
    """Job in event time whose source has a task that sleeps, in a world without random faults."""

    sleeps_for_sure: ClassVar[bool] = True


def _same(row: Row) -> Row:
    return row

"""Fuzz jobs of windows in event time, by the public API, against a dumb twin over the whole input.

A window emits its rows, each with an entry that shows the window and how many rows left with it. Records come out of
order. Where their watermark lags enough, none is late, and the twin knows the windows of each row from its offset. In
other jobs rows may be late: then each row leaves once, in a result or by the side output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from clonos.agg import bottom_k
from clonos.api.emission import each
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.api.windowed import WindowedStream
from clonos.api.windows import CountTumbling, Session, Sliding, Tumbling, WindowKind
from clonos.core.ports.operator_chain import Chain
from clonos.core.values import decode_value, encode_value
from clonos.operators.kinds.object_windows import ObjectWindows
from clonos.operators.tags import Tag
from clonos.operators.windows.key_windows import KeyWindows
from clonos.operators.windows.pane_windows import PaneWindows
from clonos.operators.windows.window_cells import END
from clonos.operators.windows.window_results import Window
from clonos_chaos.jobs.api_jobs import ApiJob, Immediate, Parts, Row
from clonos_chaos.jobs.eager_parts import draws_split, with_eager_parts
from clonos_chaos.jobs.fuzz_chain import KEYS, Disorder

MS: Final = 1_000_000
START_NS: Final = 1_700_000_000_000 // 7_800 * 7_800 * MS
"""Timestamp of the first record: a multiple of all sizes of windows."""
STEP_MS: Final = 10
LATE: Final = Tag[Row]("late")
LATE_PLACE: Final = 50
"""Place of a row that left by the side output, in place of the number of its window."""


def timestamp_ms(offset: int, disorder_ms: int) -> int:
    """Returns the timestamp of a record since the start, which lags behind earlier ones by less than the disorder."""
    return offset * STEP_MS - offset * 37 % disorder_ms


def key_of_row(row: Row) -> int:
    """Returns the key of a row."""
    return row[0] % KEYS


class StridedOffsets:
    """Source of ``(offset, ())``. Split s of n has the offsets s, s + n, ..."""

    def __init__(self, records: int, splits_per_task: int) -> None:
        self._records, self._splits_per_task = records, splits_per_task

    def splits(self, parallelism: int) -> list[bytes]:
        count = parallelism * self._splits_per_task
        return [encode_value((first, count)) for first in range(count)]

    def reader(self) -> StridedReader:
        return StridedReader(self._records)


class StridedReader:
    """Reader of one split."""

    def __init__(self, records: int) -> None:
        self._records = records

    def open(self, split: bytes, mark: bytes | None) -> None:
        found: Any = decode_value(split)
        self._next, self._stride = found
        if mark is not None:
            self._next = int(mark)

    def read(self, records_max: int) -> list[Row] | None:
        offsets = range(self._next, self._records, self._stride)[:records_max]
        self._next += len(offsets) * self._stride
        return [(offset, ()) for offset in offsets] or None

    def mark(self) -> bytes:
        return str(self._next).encode()

    def close(self) -> None:
        pass


class Spec(NamedTuple):
    """Windows of one stage in ms. ``is_exact``: the twin knows how many rows leave together."""

    name: str
    size: int
    every: int
    is_exact: bool

    def kind(self) -> WindowKind:
        """Returns the kind of window of the public API."""
        match self.name:
            case "sliding":
                return Sliding(self.size / 1000, every=self.every / 1000)
            case "session":
                return Session(self.size / 1000)
            case "count":
                return CountTumbling(self.size)
            case _:
                return Tumbling(self.size / 1000)

    def ends(self, time_ns: int) -> list[int]:
        """Returns the ends in ms of the aligned windows of an instant."""
        time = time_ns // MS
        first = time // self.every * self.every
        return sorted(start + self.size for start in range(first, time - self.size, -self.every))


class Leaving(NamedTuple):
    """Entry of a window in the lineage of a row: its start and end in ms, and how many rows left with it."""

    start: int
    end: int
    size: int


Item = tuple[int, tuple[int, ...], int]
"""Offset, path and timestamp in ns of a row in the twin."""


class WindowJob(ApiJob):
    """Job of one to three stages of windows."""

    late_share: ClassVar[float] = 0.3
    """Share of the jobs in which rows may be late."""
    disorders_ms: ClassVar[Sequence[int]] = (1, 25, 60)
    latenesses: ClassVar[Sequence[float | None]] = (None, 0.02, 0.2)

    is_patient: ClassVar[bool] = False
    """Whether windows take all rows, however late, and emit again."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        self.disorder_ms = rng.choice(self.disorders_ms)
        self.is_late = rng.random() < self.late_share
        lag_ms = rng.choice((0, 5)) if self.is_late or self.is_patient else self.disorder_ms
        stamps = Timestamps(
            partial(_timestamp_ns, self.disorder_ms),
            unit="ns",
            out_of_order=lag_ms / 1000 if lag_ms else None,
            watermark_every=rng.choice((0.001, 0.001, 0.035)),
            future_max=None,
        )
        source = StridedOffsets(self.records, rng.choice((1, 2, 3)))
        rows: Stream[Row] = graph.source(source, parallelism=rng.choice((1, 2, 3)), timestamps=stamps)
        if rng.random() < 0.3:
            rows = rows.rebalance().map(_same, parallelism=rng.choice((1, 2)))
        self._specs = self._drawn_specs(rng)
        for stage, spec in enumerate(self._specs, 1):
            if rng.random() < 0.2:
                rows = rows.map_async(_same, capacity=rng.choice((1, 4)), ordered=rng.random() < 0.5)
            rows = self._windowed(rows, stage, spec, rng)
        counted = Counter(offset for offset, _, _ in self.twin()[0])
        self.copies = counted[0] if not self.is_late else 1
        rows.sink(Immediate()) if rng.random() < 0.5 else rows.sink(Parts())

    def _drawn_specs(self, rng: Random) -> list[Spec]:
        specs = [self._spec(rng) for _ in range(rng.choice((1, 2, 2)))]
        if rng.random() < 0.2:
            specs.append(Spec("count", rng.choice((1, 3, 7)), 0, False))
        return specs

    def _spec(self, rng: Random) -> Spec:
        match rng.choice(("tumbling", "sliding", "session", "early")):
            case "sliding" if not self.is_late:
                size, every = rng.choice(((40, 20), (60, 20), (50, 25)))
                return Spec("sliding", size, every, True)
            case "session":
                return Spec("session", rng.choice((35, 60, 90)), 0, not self.is_late)
            case "early":
                size = rng.choice((50, 130))
                return Spec("early", size, size, False)
            case _:
                size = rng.choice((20, 50, 130))
                return Spec("tumbling", size, size, not self.is_late)

    def _windowed(self, rows: Stream[Row], stage: int, spec: Spec, rng: Random) -> Stream[Row]:
        options: dict[str, Any] = {"accumulate": False} if spec.name != "count" else {}
        if spec.name == "early":
            options["early"] = each(rng.choice((1, 2, 5)))
        has_late = (self.is_late or self.is_patient) and spec.name != "count"
        if has_late:
            options |= {"late": LATE, "lateness": rng.choice(self.latenesses)}
        emit: Callable[..., list[Row]] = partial(_left, stage, spec)
        parallelism = rng.choice((1, 2))
        keyed = rows.key_by(key_of_row).window(spec.kind(), **options)
        if rng.random() < 0.5:
            windows: Stream[Row] = keyed.apply(emit, parallelism=parallelism)
        else:
            may_be_split = spec.name in ("tumbling", "sliding")
            gathered = _gathered(keyed, rng.random(), parallelism, may_be_split and draws_split(rng))
            windows = gathered.flat_map(partial(_of_result, emit))
            if has_late:
                return windows.union(gathered.side_output(LATE).map(partial(_late, stage)))
        return windows.union(windows.side_output(LATE).map(partial(_late, stage))) if has_late else windows

    def new_chain(self, vertex: int) -> Chain:
        """Makes a chain for one incarnation, whose windows are checked at each barrier."""
        chain = super().new_chain(vertex)
        for operator in chain._operators:  # type: ignore[attr-defined]
            if isinstance(operator, PaneWindows | KeyWindows):
                operator.prepare = partial(_prepare, operator, operator.prepare)  # type: ignore[method-assign]
        return chain

    # --- the twin

    def twin(self) -> tuple[list[Item], dict[tuple[int, tuple[int, ...]], Leaving]]:
        """Returns the rows that come out, and the window of each row on each path."""
        items: list[Item] = [
            (offset, (), timestamp_ms(offset, self.disorder_ms) * MS) for offset in range(self.records)
        ]
        windows: dict[tuple[int, tuple[int, ...]], Leaving] = {}
        for stage, spec in enumerate(self._specs, 1):
            spans = _sessions(items, spec.size * MS) if spec.name == "session" else None
            found: list[tuple[int, tuple[int, ...], int, int]] = []
            for place, (offset, path, time_ns) in enumerate(items):
                if spans is not None:
                    found.append((offset, (*path, stage * 100), *spans[place]))
                elif spec.name == "count":
                    found.append((offset, (*path, stage * 100), 0, 0))
                else:
                    for end in spec.ends(time_ns):
                        number = end // spec.every % (spec.size // spec.every)
                        found.append((offset, (*path, stage * 100 + number), (end - spec.size) * MS, end * MS))
            sizes = Counter((offset % KEYS, start, end) for offset, _, start, end in found)
            for offset, path, start, end in found:
                windows[offset, path] = Leaving(round(start / MS), round(end / MS), sizes[offset % KEYS, start, end])
            items = [(offset, path, end - 1) for offset, path, _, end in found]
        return items, windows

    def complaints_of_rows(self, rows: Iterable[Any]) -> list[str]:
        """Returns how the windows of visible rows differ from those of the twin."""
        complaints = []
        _, windows = self.twin()
        for offset, lineage, *_ in rows:
            path: tuple[int, ...] = ()
            for vertex, _, _, shown, *_ in lineage:
                path = (*path, vertex)
                spec = self._specs[vertex // 100 - 1]
                if spec.name == "count":
                    if not 1 <= Leaving(*shown).size <= spec.size:
                        complaints.append(f"offset {offset} left a window of {spec.size} rows with {shown}")
                elif vertex % 100 == LATE_PLACE:
                    if not self.is_late:
                        complaints.append(f"offset {offset} at {path} is late")
                elif not self.is_late:
                    found, wanted = Leaving(*shown), windows.get((offset, path))
                    is_right = found == wanted if spec.is_exact else wanted is not None and found[:2] == wanted[:2]
                    if not is_right:
                        complaints.append(f"offset {offset} at {path} left {found} instead of {wanted}")
        return complaints


class SlidingJob(WindowJob):
    """Job of sliding windows and sessions after them, without late rows."""

    late_share: ClassVar[float] = 0

    def _drawn_specs(self, rng: Random) -> list[Spec]:
        return [Spec("sliding", 60, 20, True), Spec("session", 35, 0, True)]


class PatientJob(WindowJob):
    """Job of windows whose lateness is longer than any row is late."""

    late_share: ClassVar[float] = 0
    disorders_ms: ClassVar[Sequence[int]] = (25, 60)
    latenesses: ClassVar[Sequence[float | None]] = (3600,)
    is_patient: ClassVar[bool] = True

    def _drawn_specs(self, rng: Random) -> list[Spec]:
        return [Spec("tumbling", 20, 20, False), Spec("early", 50, 50, False)]


class LateJob(WindowJob):
    """Job of windows that may get late rows."""

    late_share: ClassVar[float] = 1


def _prepare(operator: PaneWindows[Any] | KeyWindows[Any], prepare: Callable[[int], None], checkpoint: int) -> None:
    """Checks before a snapshot that a step has no state of windows whose lateness has passed."""
    prepare(checkpoint)
    reached_ns = operator._reached.entries.get(0)
    if isinstance(operator, PaneWindows):
        spans = operator._spans
        ends = [spans.end_ns(spans.last_end_of(pane)) for pane in operator._panes]
    else:
        windows = operator._windows
        assert isinstance(windows, ObjectWindows), windows
        ends = [cell[END] for cells in windows._table.contents().values() for cell in cells]
        reached_ns = reached_ns if windows._assigner.ends else None
    passed = [end for end in ends if reached_ns is not None and end + operator._rules.lateness_ns <= reached_ns]
    if passed and operator._rules.is_event_time:
        raise Disorder(f"{operator._step} has the state of windows that ended at {passed}, after {reached_ns}")


def _timestamp_ns(disorder_ms: int, row: Row) -> int:
    return START_NS + timestamp_ms(row[0], disorder_ms) * MS


def _sessions(items: Sequence[Item], gap: int) -> list[tuple[int, int]]:
    """Returns start and end in ns of the session of each row, from the sorted rows of its key."""
    spans = [(0, 0)] * len(items)
    for key in range(KEYS):
        places = sorted((time, place) for place, (offset, _, time) in enumerate(items) if offset % KEYS == key)
        session: list[tuple[int, int]] = []
        for entry in [*places, (1 << 60, -1)]:
            if session and entry[0] - session[-1][0] >= gap:
                for _, place in session:
                    spans[place] = session[0][0], session[-1][0] + gap
                session = []
            session.append(entry)
    return spans


def _left(stage: int, spec: Spec, key: int, window: Window, rows: list[Row]) -> list[Row]:
    """Returns the rows of a window, each with an entry that shows the window."""
    start, end = (round(instant.timestamp() * 1000) - START_NS // MS for instant in (window.start, window.end))
    number = end // spec.every % (spec.size // spec.every) if spec.every else 0
    shown = (start, end, len(rows)) if spec.name != "count" else (0, 0, len(rows))
    return [_with_entry(row, stage * 100 + number, shown) for row in rows]


def _gathered(keyed: WindowedStream[Any, Row], choice: float, parallelism: int, is_split: bool) -> Stream[Any]:
    """Adds an aggregate that has all rows of a window: of bounded size, with ``merge`` or without it."""
    if choice >= 0.5:
        return keyed.aggregate(list, list.append, parallelism=parallelism)
    found: Stream[Any]
    if choice < 0.25:  # of equal ranks the rows are in the order in which panes are merged
        found = keyed.aggregate(rows=bottom_k(10_000, by=_no_rank), parallelism=parallelism, split_hot_keys=is_split)
    else:
        found = keyed.aggregate(list, list.append, merge=list.extend, parallelism=parallelism, split_hot_keys=is_split)
    if is_split:
        with_eager_parts(found._graph)
    return found


def _no_rank(row: Row) -> int:
    return 0


def _of_result(emit: Callable[..., list[Row]], result: Any) -> list[Row]:
    rows = result.value["rows"] if isinstance(result.value, dict) else result.value
    return emit(result.key, Window(result.start, result.end), rows)


def _late(stage: int, row: Row) -> Row:
    return _with_entry(row, stage * 100 + LATE_PLACE, (0, 0, 1))


def _with_entry(row: Row, vertex: int, shown: tuple[int, int, int]) -> Row:
    offset, lineage = row
    seen = (offset, *(entry[0] for entry in lineage))
    return offset, (*lineage, (vertex, 0, seen, shown, 0, 0))


def _same(row: Row) -> Row:
    return row

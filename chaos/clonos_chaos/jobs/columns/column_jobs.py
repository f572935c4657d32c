"""Fuzz jobs of columns: random steps by expressions, branches and exchanges between them, and records that fail.

Each column is a function of the offset, and a dumb twin computes it for dicts: a record that a restored step has lost,
doubled or computed from another one differs from the twin's. Some jobs end in windows, aggregates or joins, or choose
among the records of a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, cast

from clonos.agg import count, max_, min_, sum_
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph, Step
from clonos.api.stream import Stream
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.core.values import decode_value, encode_value
from clonos.expressions.building import col, concat_str, lit, when
from clonos.expressions.expression import Expr
from clonos.operators.columnar.partial_aggregates import PartialAggregates
from clonos.operators.operator import Operator
from clonos_chaos.jobs.api_jobs import ApiJob, Parts, stage_of_row
from clonos_chaos.jobs.columns.chosen_columns import ChosenColumns
from clonos_chaos.jobs.columns.column_totals import TotalsOfColumns
from clonos_chaos.jobs.columns.joined_columns import JoinedColumns
from clonos_chaos.jobs.transformed_jobs import Unwritten

Record = dict[str, Any]
Columns = Stream[Record]

START_S: Final = 1_700_000_000
STEPS_MAX: Final = 6
WINDOWED_SHARE: Final = 0.6
"""Share of the jobs with timestamps and without joins that have windows."""
JOINED_SHARE: Final = 0.25
"""Share of the jobs that have a join."""

CHOSEN_SHARE: Final = 0.4
"""Share of the jobs without windows that choose among the records of each key."""

TOTALS_SHARE: Final = 0.6
"""Share of the others that have aggregates of each key."""

INT64: Final = 1 << 64


def record_of(offset: int) -> Record:
    """Returns the record of an offset; every fifth text is no number."""
    text = f"r{offset}" if offset % 5 == 0 else str(offset * 7)
    return {"n": offset, "text": text, "share": offset / 4 if offset % 7 else None, "at": START_S + offset // 3}


class ColumnOffsets:
    """Source of the records of offsets, as columns; a split is a range of offsets."""

    is_columnar = True

    def __init__(self, records: int) -> None:
        self.records = records

    def splits(self, parallelism: int) -> list[bytes]:
        width = max(1, self.records // (parallelism * 2))
        return [encode_value((first, min(first + width, self.records))) for first in range(0, self.records, width)]

    def reader(self) -> ColumnOffsetsReader:
        return ColumnOffsetsReader()


class ColumnOffsetsReader:
    """Reader of a range of offsets."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        bounds: Any = decode_value(split)
        self._next, self._end = bounds
        if mark is not None:
            self._next = cast(int, decode_value(mark))

    def read(self, records_max: int) -> Any:
        import pyarrow

        offsets = range(self._next, min(self._end, self._next + records_max))
        self._next += len(offsets)
        schema = pyarrow.schema(
            {"n": pyarrow.int64(), "text": pyarrow.string(), "share": pyarrow.float64(), "at": pyarrow.int64()}
        )
        return pyarrow.RecordBatch.from_pylist(list(map(record_of, offsets)), schema=schema) if offsets else None

    def mark(self) -> bytes:
        return encode_value(self._next)

    def close(self) -> None:
        pass


Twin = Callable[[Record], Record | None]
"""What a step makes of one record; None if it drops it."""


class Steps:
    """Random steps, on a stream of columns and on records of the twin."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.twins: list[Twin] = []
        self._label = "text"  # the present name of the column of texts
        self._added: list[str] = []

    def twin(self, record: Record) -> Record | None:
        """Returns the record behind all steps."""
        for step in self.twins:
            found = step(record)
            if found is None:
                return None
            record = found
        return record

    def add(self, stream: Columns) -> Columns:
        """Adds a random step."""
        kinds = (self._filtered, self._computed, self._cast, self._renamed, self._selected, self._dropped)
        others = (self._branched, self._exchanged, self._batched)
        return self._rng.choice((*kinds, *kinds, *others))(stream)

    def _filtered(self, stream: Columns) -> Columns:
        divisor, rest, label = self._rng.choice((2, 3, 5)), self._rng.randrange(2), self._label
        self.twins.append(lambda record: record if record["n"] % divisor != rest or record[label] == "r0" else None)
        return stream.filter((col("n") % divisor != rest) | (col(label) == "r0"))

    def _computed(self, stream: Columns) -> Columns:
        name, factor = f"c{len(self.twins)}", self._rng.choice((3, 1 << 40, -7))
        kind, label = self._rng.randrange(4), self._label
        self._added.append(name)
        expressions: tuple[tuple[Expr, Callable[[Record], Any]], ...] = (
            (col("n") * factor * col("n"), lambda record: _wrapped(record["n"] * factor * record["n"])),
            (
                when(col("n") % 2 == 0).then(lit("even")).otherwise(col(label)),
                lambda record: "even" if record["n"] % 2 == 0 else record[label],
            ),
            (
                concat_str(label, lit("-"), "n").str.replace_all("r", "R"),
                lambda record: f"{record[label]}-{record['n']}".replace("r", "R"),
            ),
            (
                col("n") // 3 + col(label).str.len_chars().cast(int),
                lambda record: record["n"] // 3 + len(record[label]),
            ),
        )
        expression, function = expressions[kind]
        self.twins.append(lambda record: {**record, name: function(record)})
        return stream.with_columns(expression.alias(name))

    def _cast(self, stream: Columns) -> Columns:
        """Fails for each text that is no number."""
        name, label = f"c{len(self.twins)}", self._label
        self._added.append(name)

        def twin(record: Record) -> Record | None:
            return {**record, name: int(record[label])} if record[label].isdecimal() else None

        self.twins.append(twin)
        return stream.with_columns(col(label).cast(int).alias(name))

    def _renamed(self, stream: Columns) -> Columns:
        before, self._label = self._label, f"text{len(self.twins)}"
        after = self._label
        self.twins.append(lambda record: {after if name == before else name: record[name] for name in record})
        return stream.rename({before: after})

    def _selected(self, stream: Columns) -> Columns:
        names = ["n", self._label, "at", *(name for name in self._added if self._rng.random() < 0.7)]
        self._added = names[3:]
        self.twins.append(lambda record: {**{name: record[name] for name in names}, "constant": 1.5})
        return stream.select(*names, constant=lit(1.5))

    def _dropped(self, stream: Columns) -> Columns:
        if not self._added:
            return stream
        name = self._added.pop(self._rng.randrange(len(self._added)))
        self.twins.append(lambda record: {each: record[each] for each in record if each != name})
        return stream.drop(name)

    def _branched(self, stream: Columns) -> Columns:
        is_large = col("n") > self._rng.randrange(40)
        return stream.filter(is_large).union(stream.filter(~is_large))

    def _exchanged(self, stream: Columns) -> Columns:
        return self._rng.choice((stream.rebalance, stream.shuffle))()

    def _batched(self, stream: Columns) -> Columns:
        return stream.map_batches(_same)


class EagerPartials(PartialAggregates):
    """Partial aggregates of small batches, as worlds have them, whether or not they are fewer than the records."""

    rows_min: ClassVar[int] = 1
    gain_min: ClassVar[float] = 0


def _eager(step: Step) -> Step:
    """Returns a step of windows, with partial aggregates of all batches in front of its exchange if it has them."""
    given = step.partial
    if given is None:
        return step

    def eager(name: str) -> Callable[[], Operator]:
        make: Any = given(name)
        return partial(EagerPartials, *make.args)

    return replace(step, partial=eager)


class WindowedColumns:
    """Windows or sessions over columns by key, with or without a step on columns behind them.

    No record is late: each split has its records in the order of their timestamps.
    """

    def __init__(self, rng: Random, graph: JobGraph) -> None:
        self._graph = graph
        self._keys = rng.choice((1, 3, 10))
        self._size_s, self._every_s = rng.choice(((2, 2), (5, 5), (6, 2), (7, 3)))
        self._gap_s = rng.choice((None, None, 1, 2, 5))  # of sessions, in place of windows of a size
        self._lateness_s = rng.choice((None, 3))
        self._is_selected = rng.random() < 0.5
        self._parallelism = rng.choice((1, 2))
        self._has_two_keys = rng.random() < 0.4
        self._is_eager = rng.random() < 0.7
        self._has_floats = rng.random() < 0.4  # whose sums are never partial

    def add(self, stream: Columns) -> Columns:
        """Adds the windows to a stream."""
        kind: Sliding | Tumbling | Session
        if self._gap_s is not None:
            kind = Session(self._gap_s)
        else:
            is_sliding = self._every_s < self._size_s
            kind = Sliding(self._size_s, every=self._every_s) if is_sliding else Tumbling(self._size_s)
        floats: dict[str, Any] = {"parts": sum_("part")} if self._has_floats else {}
        results: Any = (
            stream.with_columns(key=col("n") % self._keys, odd=col("n") % 2 == 1, part=col("n") / 4)
            .key_by(*(("key", "odd") if self._has_two_keys else ("key",)))
            .window(kind, lateness=self._lateness_s if self._gap_s is None else None)
            .aggregate(
                n=count(),
                total=sum_("n"),
                low=min_("n"),
                high=max_("n"),
                parallelism=self._parallelism,
                **floats,
            )
        )
        if self._is_eager:
            self._graph._steps[-1] = _eager(self._graph.steps[-1])
        if self._is_selected:
            results = results.filter(col("n") > 0).with_columns(n=col("n") * 2)
        return cast(Columns, results)

    def output(self, result: Any) -> tuple[int, tuple[Any, ...], Any]:
        """Returns the row of a result, which is a dict behind a step on columns."""
        if self._is_selected:
            key = (result["key"], result["odd"]) if self._has_two_keys else result["key"]
            start, values = result["start"], {**result, "n": result["n"] // 2}
        else:
            key, start, values = result.key, result.start, result.value
        start_s = int(start.timestamp())
        names = ("n", "total", "low", "high", *(("parts",) if self._has_floats else ()))
        return start_s, (), (key, start_s, *(values[name] for name in names))

    def twin(self, records: Iterable[Record]) -> Counter[Any]:
        """Returns the rows of all windows."""
        found: dict[tuple[Any, int], list[int]] = {}
        begun: dict[Any, tuple[int, int]] = {}  # of each key, the start of its session and the time of its last record
        for record in records:
            key, at_s = self._key(record["n"]), record["at"]
            if self._gap_s is not None:
                start_s, last_s = begun.get(key, (at_s, at_s))
                start_s = start_s if at_s < last_s + self._gap_s else at_s
                begun[key] = start_s, at_s
                found.setdefault((key, start_s), []).append(record["n"])
                continue
            last_s = at_s - at_s % self._every_s
            for start_s in range(last_s, at_s - self._size_s, -self._every_s):
                found.setdefault((key, start_s), []).append(record["n"])
        rows = [(*place, len(each), sum(each), min(each), max(each), sum(each) / 4) for place, each in found.items()]
        return Counter(row if self._has_floats else row[:-1] for row in rows)

    def _key(self, number: int) -> Any:
        key = number % self._keys
        return (key, number % 2 == 1) if self._has_two_keys else key


class ColumnJob(ApiJob):
    """Job of random steps on columns."""

    counts_rows: ClassVar[bool] = False

    end_complaints: Callable[[Iterable[Any]], list[str]] | None = None
    """What is wrong with the rows of a job that ends in aggregates of each key."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        graph.errors = Unwritten()
        timestamps = rng.choice((None, Timestamps("at", future_max=None)))
        source = ColumnOffsets(self.records)
        stream: Columns = graph.source(source, parallelism=rng.choice((1, 2)), timestamps=timestamps)
        steps = Steps(rng)
        for _ in range(rng.randint(1, STEPS_MAX)):
            stream = steps.add(stream)
        found = [each for each in map(steps.twin, map(record_of, range(self.records))) if each is not None]
        output: Any = partial(_output, rng)
        end: WindowedColumns | JoinedColumns | None = None
        self.wanted = Counter(map(_values, found))
        if rng.random() < JOINED_SHARE:
            end = JoinedColumns(rng, timestamps is not None)
        elif timestamps is not None and rng.random() < WINDOWED_SHARE:
            end = WindowedColumns(rng, graph)
        elif rng.random() < CHOSEN_SHARE:
            chosen = ChosenColumns(rng, has_times=timestamps is not None)
            stream, output = chosen.add(stream), chosen.output
            self.end_complaints = partial(chosen.complaints, found)
        elif rng.random() < TOTALS_SHARE:
            totals = TotalsOfColumns(rng)
            stream, output = totals.add(stream), totals.output
            self.end_complaints = partial(totals.complaints, found)
        if end is not None:
            stream, output = end.add(stream), end.output
            self.wanted = end.twin(found)
        self.kinds = {step.kind for step in graph.steps}
        stream.map(output, parallelism=rng.choice((1, 2))).sink(Parts())

    def complaints_of_rows(self, rows: Iterable[Any]) -> list[str]:
        """Returns how the rows at the sink differ from those of the twin."""
        if self.end_complaints is not None:
            return self.end_complaints(values for _, _, values in rows)
        found = Counter(values for _, _, values in rows)
        missing, strange = self.wanted - found, found - self.wanted
        return [f"missing {dict(missing)}, strange {dict(strange)}"] if missing or strange else []


def _output(rng: Random, record: Record) -> tuple[int, tuple[Any, ...], Any]:
    offset, lineage = stage_of_row(4, rng, None, (record["n"], ()))
    return offset, lineage, _values(record)


def _values(record: Record) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(record.items()))


def _wrapped(number: int) -> int:
    """Returns a number as an integer of 64 bits that wraps."""
    return (number + INT64 // 2) % INT64 - INT64 // 2


def _same(batch: Any) -> Any:
    return batch

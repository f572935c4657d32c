"""Fuzz jobs of columns: random steps by expressions, branches and exchanges between them, and records that fail.

Each column is a function of the offset, and a dumb twin computes it for dicts: a record that a restored step has lost,
doubled or computed from another one differs from the twin's. Some jobs end in windows, aggregates or joins, or choose
among the records of a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, cast

from clonos.api.columns.schemas import input_schema
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.core.values import decode_value, encode_value
from clonos.expressions.building import col, concat_str, lit, when
from clonos.expressions.expression import Expr
from clonos_chaos.jobs.api_jobs import ApiJob, Parts, stage_of_row
from clonos_chaos.jobs.columns.chosen_columns import ChosenColumns
from clonos_chaos.jobs.columns.joined_columns import JoinedColumns
from clonos_chaos.jobs.columns.keyed_totals import TotalsOfColumns
from clonos_chaos.jobs.columns.looked_up_columns import LookedUpColumns
from clonos_chaos.jobs.columns.windowed_columns import WindowedColumns
from clonos_chaos.jobs.transformed_jobs import Unwritten

Record = dict[str, Any]
Columns = Stream[Record]

START_S: Final = 1_700_000_000
STEPS_MAX: Final = 6
WINDOWED_SHARE: Final = 0.6
"""Share of the jobs with timestamps and without joins that have windows."""
JOINED_SHARE: Final = 0.35
"""Share of the jobs that have a join."""

LOOKED_UP_SHARE: Final = 0.4
"""Share of the joins that look up a version of each key."""

CHOSEN_SHARE: Final = 0.4
"""Share of the jobs without windows that choose among the records of each key."""

TOTALS_SHARE: Final = 0.6
"""Share of the others that have aggregates of each key."""

INT64: Final = 1 << 64


def record_of(offset: int) -> Record:
    """Returns the record of an offset; every fifth text is no number."""
    text = f"r{offset}" if offset % 5 == 0 else str(offset * 7)
    return {"n": offset, "text": text, "share": offset / 4 if offset % 7 else None, "at": START_S + offset // 3}


def _schema() -> Any:
    import pyarrow

    return pyarrow.schema(
        {"n": pyarrow.int64(), "text": pyarrow.string(), "share": pyarrow.float64(), "at": pyarrow.int64()}
    )


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

    def column_schema(self) -> Any:
        return _schema()


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
        return pyarrow.RecordBatch.from_pylist(list(map(record_of, offsets)), schema=_schema()) if offsets else None

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
        """Returns the record after all steps."""
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
        schema = input_schema(stream._graph.steps, stream._inputs)
        if self._rng.random() < 0.5:
            return stream.map_batches(_same, schema=schema)
        within = self._rng.choice((None, "1ms", "20ms"))
        return stream.map_batches(_same, schema=schema, rows=self._rng.choice((1, 3, 10)), within=within)


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
        end: WindowedColumns | JoinedColumns | LookedUpColumns | None = None
        self.wanted = Counter(map(_values, found))
        if rng.random() < JOINED_SHARE:
            is_timed = timestamps is not None
            end = LookedUpColumns(rng, is_timed) if rng.random() < LOOKED_UP_SHARE else JoinedColumns(rng, is_timed)
        elif timestamps is not None and rng.random() < WINDOWED_SHARE:
            end = WindowedColumns(rng, graph)
        elif rng.random() < CHOSEN_SHARE:
            chosen = ChosenColumns(rng, has_times=timestamps is not None)
            stream, output = chosen.add(stream), chosen.output
            self.end_complaints = partial(chosen.complaints, found)
        elif rng.random() < TOTALS_SHARE:
            totals = TotalsOfColumns(rng, graph)
            stream, output = totals.add(stream), totals.output
            self.end_complaints = partial(totals.complaints, found)
        if end is not None:
            stream, output = end.add(stream), end.output
            self.wanted = end.twin(found)
        if isinstance(end, LookedUpColumns) and not end.is_as_of:
            self.end_complaints = partial(end.complaints, found)
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

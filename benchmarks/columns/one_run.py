"""Jobs over made-up columns, each in a process of its own: ``python -m benchmarks.columns.one_run {JSON}``.

Records have a key, a value and the time, and lie in two Parquet files in the order of their time.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy
import pandas
import pyarrow
import pyarrow.parquet

from benchmarks.nexmark.one_run import OF_COLUMNS, print_cost
from benchmarks.nexmark.queries import Check, Query
from benchmarks.nexmark.results import ResultSink
from benchmarks.workloads.word_job import ALL_ON
from clonos import Job, Sliding, Stream, Timestamps, Tumbling, col, files
from clonos.agg import count, sum_

COLUMNS: Final = ("key", "value", "at")
FILES: Final = 2
SPAN_S: Final = 6_000
WINDOW_S: Final = 600
GROUP_ROWS: Final = 1 << 17
SMOOTHED: Final = pyarrow.schema([("key", "int64"), ("records", "int64"), ("mean", "float64")])


@dataclass(frozen=True)
class Order:
    """Order for one run. ``slide_s``: of windows of 600 s; 0: one window for all; negative: reading only.

    ``has_frames``: a function gets the records of each window as a frame of pandas.
    """

    records: str
    folder: str
    slide_s: int
    has_frames: bool = False


def write_records(folder: Path, count: int, keys: int) -> Path:
    """Writes the files, unless they are there; returns their folder. They are the same in each call."""
    target = folder / f"columns-{count}-{keys}"
    if not target.is_dir():
        made = target.with_suffix(".new")
        made.mkdir(parents=True, exist_ok=True)
        stream = numpy.random.default_rng(5)
        at_us = (numpy.arange(count, dtype=numpy.int64) * (SPAN_S * 1_000_000 // count)).view("datetime64[us]")
        table = pyarrow.table(
            {
                "key": stream.integers(0, keys, count),
                "value": stream.integers(0, 1_000, count),
                "at": pyarrow.array(at_us, pyarrow.timestamp("us", "UTC")),
                "unread": stream.integers(0, 1 << 60, count),
            }
        )
        for number in range(FILES):
            part = table.take(numpy.arange(number, count, FILES))
            pyarrow.parquet.write_table(part, made / f"{number}.parquet", row_group_size=GROUP_ROWS)
        made.rename(target)
    return target


def smoothed(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Returns a rolling mean beside each value."""
    mean = frame["value"].rolling(20, min_periods=1).mean()
    return pandas.DataFrame({"key": frame["key"], "records": 1, "mean": mean})


def make_job(order: Order) -> tuple[Job, Stream[Any]]:
    """Makes the job and the stream of its results."""
    job = Job("column-costs")
    timestamps = None if order.slide_s < 0 else Timestamps("at")
    source = files.parquet(f"{order.records}/*.parquet", columns=list(COLUMNS))
    records = job.source(source, name="records", timestamps=timestamps)
    if timestamps is None:
        return job, records.filter(col("value") + col("key") < 0)
    windows: Tumbling | Sliding = Sliding(f"{WINDOW_S}s", f"{order.slide_s}s") if order.slide_s else Tumbling("1d")
    if order.has_frames:
        return job, records.key_by("key").window(windows).map_frames(smoothed, schema=SMOOTHED, name="frames")
    totals = records.key_by("key").window(windows).aggregate(records=count(), total=sum_("value"), name="totals")
    return job, totals.select("key", "records", "total")


def run_here(order: Order) -> list[Path]:
    """Runs the job; returns the files with the sums of its results."""
    job, results = make_job(order)
    sink = ResultSink(Query("costs", "sums", Check.SUMS), Path(order.folder))
    results.sink(sink, name="results")
    options: dict[str, Any] = {**ALL_ON, **OF_COLUMNS}
    job.run(slots="process", store=f"{order.folder}/store", overwrite=True, **options)
    return sink.parts


def main() -> None:
    """Runs what the argument says."""
    order = Order(**json.loads(sys.argv[1]))
    print_cost(lambda: run_here(order))


if __name__ == "__main__":
    main()

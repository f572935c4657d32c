"""The queries as plain loops over batches, by hand: an upper bound, without exchange, checkpoint, log and recovery.

One process reads the files in turn, batch by batch, and keeps what a query needs in arrays. Like in the jobs, the
watermark is the lower one of both files.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from benchmarks.nexmark import bare_batches as batches
from benchmarks.nexmark.generator import DISORDER_S
from benchmarks.nexmark.jobs.columns import PLAIN
from benchmarks.nexmark.one_run import Cost
from benchmarks.nexmark.queries import AUCTION, BID, PERSON, QUERIES, Check
from benchmarks.nexmark.results import Results, added, sums_of_columns

BATCH_ROWS: Final = 8_192
OUT_OF_ORDER_MS: Final = int(DISORDER_S * 1000)
PANE_MS, PANES = 2_000, 5
WINDOW_MS: Final = 10_000

Array = np.ndarray[Any, Any]


def read(folder: Path, columns: tuple[str, ...]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yields the batches of the files in turn, each with the watermark after it, in milliseconds."""
    files = [pyarrow.parquet.ParquetFile(path) for path in sorted(folder.glob("*.parquet"))]
    readers = [
        file.iter_batches(batch_size=BATCH_ROWS, columns=["kind", *columns], use_threads=False) for file in files
    ]
    latest = dict.fromkeys(range(len(readers)), 0)
    while latest:
        for number in list(latest):
            batch = next(readers[number], None)
            if batch is None:
                del latest[number]
                continue
            if "date_time" in columns:
                latest[number] = max(latest[number], int(times_of(batch).max()))
            yield batch, min(latest.values()) - OUT_OF_ORDER_MS


def times_of(batch: pa.RecordBatch) -> Array:
    """Returns the timestamps of a batch in milliseconds."""
    return ints(batch, "date_time")


def ints(batch: pa.RecordBatch, name: str) -> Array:
    """Returns a column without nulls as numbers."""
    found: Array = batch.column(name).cast(pa.int64()).to_numpy()
    return found


def of_kind(batch: pa.RecordBatch, kind: int) -> pa.RecordBatch:
    """Selects the events of a kind."""
    return batch.filter(pc.equal(batch.column("kind"), kind))


def _each(function: Callable[[pa.RecordBatch], pa.RecordBatch], *columns: str) -> Callable[[Path], Iterator[Any]]:
    def run(folder: Path) -> Iterator[pa.RecordBatch]:
        for batch, _ in read(folder, columns):
            yield function(batch)

    return run


def counts(keys: Array) -> tuple[Array, Array]:
    """Returns the distinct keys and how often each occurs: dense ids by counting, others by sorting."""
    least, most = (int(keys.min()), int(keys.max())) if len(keys) else (0, -1)
    if most - least < 16 * len(keys):
        found = np.bincount(keys - least)
        present = np.flatnonzero(found)
        return present + least, found[present]
    return np.unique(keys, return_counts=True)


def merged(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Adds the counts of several parts."""
    keys = np.concatenate([part[0] for part in parts])
    weights = np.concatenate([part[1] for part in parts])
    least = int(keys.min())
    if int(keys.max()) - least < 16 * len(keys):
        found = np.bincount(keys - least, weights).astype(np.int64)
        present = np.flatnonzero(found)
        return present + least, found[present]
    distinct, at = np.unique(keys, return_inverse=True)
    return distinct, np.bincount(at, weights).astype(np.int64)


def panes(times: Array, size_ms: int) -> Iterator[tuple[int, Array]]:
    """Yields the panes of a batch and the rows in each."""
    numbers = times // size_ms
    for pane in np.unique(numbers):
        yield int(pane), np.flatnonzero(numbers == pane)


def q5(folder: Path) -> Iterator[pa.RecordBatch]:
    """Finds hot auctions: counts by pane of two seconds, five of which are a window."""
    by_pane: dict[int, list[tuple[Array, Array]]] = {}
    next_end: int | None = None

    def emit(until_ms: float) -> Iterator[pa.RecordBatch]:
        nonlocal next_end
        while by_pane and next_end is not None and next_end * PANE_MS <= until_ms:
            parts = [part for pane in range(next_end - PANES, next_end) for part in by_pane.get(pane, [])]
            if parts:
                keys, found = merged(parts)
                most = found.max()
                yield pa.record_batch({"auction": keys[found == most], "num": found[found == most]})
            by_pane.pop(next_end - PANES, None)
            next_end += 1

    for batch, watermark_ms in read(folder, ("auction", "date_time")):
        bids = of_kind(batch, BID)
        times, auctions = times_of(bids), ints(bids, "auction")
        for pane, rows in panes(times, PANE_MS):
            by_pane.setdefault(pane, []).append(counts(auctions[rows]))
            next_end = pane + 1 if next_end is None else min(next_end, pane + 1)
        yield from emit(watermark_ms)
    yield from emit(float("inf"))


def q7(folder: Path) -> Iterator[pa.RecordBatch]:
    """Finds the highest bids of windows."""
    best: dict[int, tuple[int, list[pa.RecordBatch]]] = {}
    names = ("auction", "price", "bidder", "date_time", "extra")
    for batch, watermark_ms in read(folder, names):
        bids = of_kind(batch, BID)
        times, prices = times_of(bids), ints(bids, "price")
        for window, rows in panes(times, WINDOW_MS):
            highest = int(prices[rows].max())
            before, highest_bids = best.get(window, (0, []))
            if highest >= before:
                found = bids.take(pa.array(rows[prices[rows] == highest])).select(names)
                best[window] = highest, [*(highest_bids if highest == before else []), found]
        for window in [window for window in best if (window + 1) * WINDOW_MS <= watermark_ms]:
            yield from best.pop(window)[1]
    for _, highest_bids in best.values():
        yield from highest_bids


def q8(folder: Path) -> Iterator[pa.RecordBatch]:
    """Finds new sellers: persons and sellers of each window."""
    persons: dict[int, list[pa.RecordBatch]] = {}
    sellers: dict[int, list[Array]] = {}

    def emit(until_ms: float) -> Iterator[pa.RecordBatch]:
        for window in [window for window in persons if (window + 1) * WINDOW_MS <= until_ms]:
            begins = pa.scalar(window * WINDOW_MS).cast(pa.timestamp("ms", tz="UTC"))
            wanted = np.concatenate(sellers.pop(window, [np.empty(0, np.int64)]))
            for found in persons.pop(window):
                new = found.filter(pa.array(np.isin(ints(found, "id"), wanted)))
                yield pa.record_batch(
                    {"id": new.column("id"), "name": new.column("name"), "begins": pa.repeat(begins, new.num_rows)}
                )

    for batch, watermark_ms in read(folder, ("id", "name", "seller", "date_time")):
        coming, auctions = of_kind(batch, PERSON), of_kind(batch, AUCTION)
        for window, rows in panes(times_of(coming), WINDOW_MS):
            persons.setdefault(window, []).append(coming.take(pa.array(rows)))
        for window, rows in panes(times_of(auctions), WINDOW_MS):
            sellers.setdefault(window, []).append(ints(auctions, "seller")[rows])
        yield from emit(watermark_ms)
    yield from emit(float("inf"))


def q12(folder: Path) -> Iterator[pa.RecordBatch]:
    """Counts bids by the clock."""
    gathered: list[tuple[Array, Array]] = []
    ends_s = time.monotonic() + WINDOW_MS / 1000

    def emit() -> Iterator[pa.RecordBatch]:
        if gathered:
            keys, found = merged(gathered)
            yield pa.record_batch({"bidder": keys, "num": found})
            gathered.clear()

    for batch, _ in read(folder, ("bidder",)):
        gathered.append(counts(ints(of_kind(batch, BID), "bidder")))
        if time.monotonic() >= ends_s:
            yield from emit()
            ends_s += WINDOW_MS / 1000
    yield from emit()


LOOPS: Final[dict[str, Callable[[Path], Iterator[pa.RecordBatch]]]] = {
    "q0": _each(batches.bids_of, *PLAIN),
    "q1": _each(batches.converted, *PLAIN),
    "q2": _each(batches.of_some_auctions, "auction", "price"),
    "q5": q5,
    "q7": q7,
    "q8": q8,
    "q12": q12,
    "q14": _each(batches.calculated, *PLAIN),
    "q22": _each(batches.directories, "auction", "bidder", "price", "channel", "url"),
}


def run(query: str, folder: Path) -> tuple[Results, Cost]:
    """Runs a loop in this process."""
    before, begun_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    results = Results()
    is_summed = QUERIES[query].check is Check.SUMS
    for batch in LOOPS[query](folder):
        if is_summed:
            results.sums = added(results.sums, sums_of_columns(batch))
        else:
            results.batches.append(batch)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return results, Cost(cpu_s, time.monotonic() - begun_s, [])

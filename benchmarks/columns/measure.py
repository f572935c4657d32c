"""Benchmark: what a record costs in columns: to read it, to send it by key, and to add it to windows and keys.

Reading and windows are whole jobs with everything on, by processor time of all processes without the fixed cost of a
job. A hop is measured in one thread, without sockets: keys, partition, encoding, the machines of both slots, decoding.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy
import pyarrow
import pyarrow.parquet

from benchmarks.columns.one_run import COLUMNS, WINDOW_S, Order, write_records
from benchmarks.harness.ab_session import Session
from benchmarks.harness.isolated_run import ROOT
from benchmarks.harness.result_counter import WrongResult
from benchmarks.measures.slot_machine import PLAN, MeasuredSlot
from benchmarks.nexmark.clonos_side import run_apart
from benchmarks.nexmark.results import Results
from clonos.core.model.ids import SlotId
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.values import decode_columns, encode_columns
from clonos.core.values.column_keys import KeyGroups, split_columns
from clonos.core.values.keys import Router
from clonos.core.wire.message_codec import decode_message
from clonos.io.system.collections_paused import collect_rarely
from clonos.io.system.retained_memory import retain_memory

RECORDS: Final = 20_000_000
RECORDS_QUICK: Final = 1_000_000
RECORDS_EMPTY: Final = 200
KEYS: Final = 1_000
SLIDES_S: Final = (600, 60, 10)
MANY_KEYS: Final = (1_000, 100_000, 1_000_000)
READING: Final = -1
ONE_WINDOW: Final = 0
HOP_ROWS: Final = 8_192
HOP_ROUNDS: Final = 20
HOPS: Final = 500
"""Hops between two looks at the clock of the thread, which costs as much as a hop on some machines."""

HOP_TASKS: Final = 2
SOURCE: Final = SlotId(1)


def run(session: Session) -> None:
    """Measures hops, then reading, then windows by overlap and by keys, in turn for each pair."""
    retain_memory()  # as slots of jobs with columns do
    collect_rarely()
    known = KeyGroups(PLAN.max_parallelism)
    hops_us = [_hop_us(known, HOPS) for _ in range(HOP_ROUNDS)]
    session.figure("a hop of 8,192 narrow rows by key", statistics.median(hops_us), "us, median", "<= 100")
    session.figure("a hop of 8,192 narrow rows by key", min(hops_us), "us, least")
    count = session.events or (RECORDS_QUICK if session.is_quick else RECORDS)
    few = {keys: write_records(ROOT / "build", count, keys) for keys in MANY_KEYS}
    empty = write_records(ROOT / "build", RECORDS_EMPTY, KEYS)
    session.progress(f"{count:,} records are in {few[KEYS]}")
    fixed_s = statistics.median(cpu_s(empty, RECORDS_EMPTY, READING) for _ in range(3))
    session.figure("fixed cost of a job", fixed_s, "s")
    reading_s, alone_s = [], []
    for _ in range(session.pairs):
        alone_s.append(_read_alone_s(few[KEYS]))
        reading_s.append(cpu_s(few[KEYS], count, READING) - fixed_s)
    session.compared("rate of a source of Parquet/reader alone", alone_s, reading_s, ">= 0.8")
    kinds = [(few[KEYS], slide_s) for slide_s in SLIDES_S] + [(few[keys], ONE_WINDOW) for keys in MANY_KEYS]
    costs: list[list[float]] = [[] for _ in kinds]
    for _ in range(session.pairs):
        for (records, slide_s), found in zip(kinds, costs, strict=True):
            found.append((cpu_s(records, count, slide_s) - fixed_s) * 1e9 / count)
    names = [f"a record in {WINDOW_S // slide_s} windows" for slide_s in SLIDES_S]
    names += [f"a record of one of {keys:,} keys" for keys in MANY_KEYS]
    for name, found in zip(names, costs, strict=True):
        session.figure(name, statistics.median(found), "ns, median")
    session.compared("cost in 60 windows/in one", costs[2], costs[0])
    session.compared("cost of 1,000,000 keys/of 1,000", costs[5], costs[3])


def cpu_s(records: Path, count: int, slide_s: int, *, has_frames: bool = False) -> float:
    """Runs a job; returns its processor time. Raises WrongResult, RunFailed."""
    with tempfile.TemporaryDirectory(prefix="clonos-columns-", ignore_cleanup_errors=True) as folder:
        order = Order(str(records), folder, slide_s, has_frames)
        cost = run_apart("benchmarks.columns.one_run", f"slide {slide_s} s", json.dumps(asdict(order)), folder)
        if slide_s != READING:
            wanted = count * (WINDOW_S // slide_s if slide_s else 1)
            sums = Results.read([Path(part) for part in cost.parts]).sums
            if wanted not in sums[1:]:
                raise WrongResult(f"windows of {slide_s} s have the sums {sums}, and {wanted:,} records are expected")
    return cost.cpu_s


def _read_alone_s(records: Path) -> float:
    """Reads the same columns of the same files with Arrow alone; returns the processor time."""
    begun_s = time.process_time()
    for path in sorted(records.glob("*.parquet")):
        with pyarrow.parquet.ParquetFile(path) as file:
            for _batch in file.iter_batches(columns=list(COLUMNS), use_threads=False):
                pass
    return time.process_time() - begun_s


def _hop_us(known: KeyGroups, rounds: int) -> float:
    """Measures hops from one task to two; returns the processor time of the thread for each."""
    stream, router, slot = numpy.random.default_rng(7), Router(HOP_TASKS, PLAN.max_parallelism), MeasuredSlot()
    columns = [{"key": stream.integers(0, KEYS, HOP_ROWS), "value": stream.integers(0, 9, HOP_ROWS)} for _ in range(9)]
    batches = [pyarrow.record_batch(columns[number % len(columns)]) for number in range(rounds)]
    steps = [slot.step(number) for number in range(rounds)]
    heads = [[slot.batch(HOP_TASKS * number + part) for part in range(HOP_TASKS)] for number in range(rounds)]
    begun_ns = time.thread_time_ns()
    for batch, step, arriving in zip(batches, steps, heads, strict=True):
        parts = split_columns(router, batch, known.of([batch.column("key")]))
        encoded = [encode_columns(part) for part in parts]
        slot.handle(step)
        for part, head in zip(encoded, arriving, strict=True):
            slot.handle(MessageReceived(SOURCE, decode_message(head, "the source"), part))
            decode_columns(part)
    return (time.thread_time_ns() - begun_ns) / rounds / 1e3

"""Keyed workloads as Clonos jobs on slot processes, with checkpoints and standbys."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.keyed_result_counter import KeyedResultCounter
from benchmarks.harness.result_counter import Measured, SinkResult, measured
from benchmarks.workloads.keyed import KINDS, KeyedWorkload, profile
from benchmarks.workloads.word_job import ALL_ON, COLUMN_OPTIONS, PreparedLines, stages_of
from clonos import Job, service
from clonos.agg import count, max_, sum_
from clonos.core.values.keys import Router

MAX_PARALLELISM = 128


@service
def profile_of(bidder: int) -> str:
    """Returns the profile of a bidder by a recorded call."""
    return profile(bidder)


def with_profile(bid: tuple[int, int, int]) -> tuple[int, int, str]:
    """Replaces the price by the bidder's profile."""
    return bid[0], bid[1], profile_of(bid[1])


def key_of(record: tuple[Any, ...]) -> Any:
    """Returns the first field."""
    return record[0]


@dataclass
class KeyedSink:
    """Transactional sink that counts results in the task's process. ``rows``: of each task."""

    workload: KeyedWorkload
    rows: list[int]
    is_columnar: bool = False
    parts: list[SinkResult] = field(default_factory=list)

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Removes earlier results."""
        self.parts.clear()

    def writer(self) -> KeyedWriter:
        """Makes the writer of a task."""
        return KeyedWriter(self.workload, self.rows)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Collects the results in the driver."""
        self.parts += [SinkResult.decoded(part) for part in parts]


class KeyedWriter:
    """Writer that counts results, and hands over its count when all have come."""

    def __init__(self, workload: KeyedWorkload, rows: list[int]) -> None:
        self._folder = Path(workload.folder)
        self._stages = stages_of(workload)
        self._rows = rows
        self._is_reported = False

    def open(self, context: Any) -> None:
        """Sets the number of rows of its task."""
        if self._stages is not None:
            self._stages.begin()
        self._counter = KeyedResultCounter(self._rows[context.index])

    def write(self, rows: list[Any]) -> None:
        """Counts a batch of results."""
        self._counter.add(rows)

    def write_columns(self, batch: Any) -> None:
        """Counts a batch of results."""
        self._counter.add_columns(batch)

    def prepare(self, checkpoint: int) -> bytes | None:
        """Returns the count, once."""
        if self._is_reported or not self._counter.is_complete:
            return None
        self._is_reported = True
        if self._stages is not None:
            self._stages.leave(self._folder)
        return self._counter.part().encoded()

    def close(self) -> None:
        """Does nothing, because no file is open."""


def bids_in_columns(workload: KeyedWorkload, sink: Any) -> Job:
    """Makes the job of bids with built-in aggregates of columns."""
    job = Job(workload.kind)
    records = job.source(PreparedLines(workload, True), name="records")
    totals = records.key_by("auction").aggregate(n=count(), total=sum_("price"), highest=max_("price"), name="fold")
    totals.select("auction", "n", "total", "highest", name="results").sink(sink)
    return job


def job_of(workload: KeyedWorkload, sink: Any) -> Job:
    """Makes the job: read, enrich if the kind does, fold by key."""
    kind = KINDS[workload.kind]
    job = Job(workload.kind)
    records: Any = job.source(PreparedLines(workload, False), name="records")
    if kind.asks:
        records = records.map(with_profile, name="ask")
    records.key_by(key_of).stateful_map(kind.fold, name="fold").sink(sink)
    return job


def run(workload: KeyedWorkload, shape: str = "rows", **options: Any) -> Measured:
    """Runs the job once and checks the result. ``shape``: rows, or columns for bids."""
    rows, finals = workload.expected(Router(workload.readers, MAX_PARALLELISM).target)
    is_columnar = shape == "columns"
    sink = KeyedSink(workload, rows, is_columnar)
    folder = Path(workload.folder)
    chosen = {**ALL_ON, **(COLUMN_OPTIONS if is_columnar else {}), **options}
    job = bids_in_columns(workload, sink) if is_columnar else job_of(workload, sink)
    result = job.run(slots="process", store=str(folder / "store"), overwrite=True, **chosen)
    read = [SinkResult.decoded((folder / f"read-{reader}").read_bytes()) for reader in range(workload.readers)]
    found = measured(workload, read, sink.parts, finals)
    return replace(found, determinant_bytes=result.counter("determinant_bytes"))

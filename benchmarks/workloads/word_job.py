"""The word count as a job of Clonos, with everything on, on slot processes: what is compared with the other sides."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.result_counter import Measured, ResultCounter, SinkResult, measured
from benchmarks.workloads.words import Workload
from clonos import Job
from clonos.core.values.keys import Router

ALL_ON: Final[Mapping[str, object]] = {"checkpoint_every": "1s", "standbys": 1, "parallelism": 2}
"""Besides the defaults: causal logging, shared as far as it goes."""

MARK_BYTES: Final = 8
COLUMN_OPTIONS: Final[Mapping[str, object]] = {"step_records_max": 1 << 16}


def stages_of(workload: Any) -> Any:
    """The module that measures stages, where that is asked for: one for all of a slot's process, hence by its name."""
    return import_module("benchmarks.harness.stage_clock") if workload.is_staged else None


def targets(words: Sequence[str], width: int) -> dict[str, int]:
    """The task that each word belongs to."""
    router = Router(width, 128)
    return {word: router.target(word) for word in words}


@dataclass(frozen=True)
class PreparedLines:
    """A source of a workload's lines, in rows or in columns; of its records, if it is a keyed one."""

    workload: Any
    is_columnar: bool

    def splits(self, parallelism: int) -> list[bytes]:
        """One a reader."""
        return [b"%d" % reader for reader in range(self.workload.readers)]

    def reader(self) -> LineReader:
        """Reads one share."""
        return LineReader(self.workload, self.is_columnar)


class LineReader:
    """Has its share in memory before the first read. Leaves in a file when it began, and what that cost."""

    def __init__(self, workload: Any, is_columnar: bool) -> None:
        self._workload = workload
        self._stages = stages_of(workload)
        self._is_columnar = is_columnar
        self._next = 0
        self._begun_ns = self._cpu_ns = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """From the mark on."""
        if self._stages is not None:
            self._stages.begin()
        self._report = Path(self._workload.folder) / f"read-{split.decode()}"
        share = self._workload.share(int(split))
        self._after: Callable[[int, int], Any] = share.columns().after if self._is_columnar else share.after
        self._next = int.from_bytes(mark or b"", "big")

    def read(self, records_max: int) -> Any:
        """A slice; None at the end."""
        if not self._begun_ns:
            self._begun_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        lines = self._after(self._next, records_max)
        if lines is None or not len(lines):
            cpu_ns = time.process_time_ns() - self._cpu_ns
            if self._stages is not None:
                self._stages.leave(self._report.parent)
            self._report.write_bytes(SinkResult(0, self._begun_ns, time.monotonic_ns(), cpu_ns, {}).encoded())
            return None
        self._next += len(lines)
        return lines

    def mark(self) -> bytes:
        """Lines before the next one."""
        return self._next.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class CountingSink:
    """A transactional sink: tallies in the task's process, commits what was tallied with its checkpoint."""

    workload: Workload
    rows: list[int]
    is_columnar: bool = True
    committed: dict[int, list[SinkResult]] = field(default_factory=dict)

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Nothing is there yet."""
        self.committed.clear()

    def writer(self) -> CountingWriter:
        """Of one task."""
        return CountingWriter(self.workload, self.rows)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """In the driver. Each part holds all since its task began, so that the last of each counts."""
        self.committed[checkpoint] = [SinkResult.decoded(part) for part in parts]


class CountingWriter:
    """Hands batches to a tally."""

    def __init__(self, workload: Workload, rows: list[int]) -> None:
        self._workload = workload
        self._stages = stages_of(workload)
        self._rows = rows
        self._seen = 0

    def open(self, context: Any) -> None:
        """Takes the number of rows of its task."""
        if self._stages is not None:
            self._stages.begin()
        self._counter = ResultCounter(self._rows[context.index])

    def write(self, rows: list[Any]) -> None:
        """A batch of counts."""
        self._counter.add(rows)

    def write_columns(self, batch: Any) -> None:
        """A batch of counts."""
        self._counter.add_columns(batch)

    def prepare(self, checkpoint: int) -> bytes | None:
        """What this task has seen, if there is more than at the last time."""
        part = self._counter.part()
        if part.rows == self._seen:
            return None
        self._seen = part.rows
        if self._stages is not None:
            self._stages.leave(Path(self._workload.folder))
        return part.encoded()

    def close(self) -> None:
        """Nothing is open."""


def split_words(batch: Any) -> Any:
    """The words of a batch of lines."""
    import pyarrow
    import pyarrow.compute

    words = pyarrow.compute.list_flatten(pyarrow.compute.split_pattern(batch.column(0), " "))
    return pyarrow.record_batch({"word": words})


def word_count(workload: Workload, shape: str, sink: Any, touch: Callable[[str], str] | None = None) -> Job:
    """The job: ``shape`` is rows or columns. ``touch``: a further step in rows, for each word."""
    job = Job("words")
    lines = job.source(PreparedLines(workload, shape == "columns"), name="lines")
    if shape == "columns":
        lines.map_batches(split_words).key_by("word").count(name="count").sink(sink)
    else:
        words = lines.flat_map(str.split)
        words = words if touch is None else words.map(touch, name="touch")
        words.key_by(lambda word: word).count(name="count").sink(sink)
    return job


def run(workload: Workload, shape: str, touch: Callable[[str], str] | None = None, **options: Any) -> Measured:
    """One run, checked."""
    rows = [0] * workload.readers
    finals = workload.finals()
    for word, task in targets(list(finals), workload.readers).items():
        rows[task] += finals[word]
    sink = CountingSink(workload, rows)
    chosen = {**ALL_ON, **(COLUMN_OPTIONS if shape == "columns" else {}), **options}
    folder = Path(workload.folder)
    job = word_count(workload, shape, sink, touch)
    result = job.run(slots="process", store=str(folder / "store"), overwrite=True, **chosen)
    counted = [part for parts in sink.committed.values() for part in parts]
    read = [SinkResult.decoded((folder / f"read-{reader}").read_bytes()) for reader in range(workload.readers)]
    found = measured(workload, read, _last_of_each(counted))
    return replace(found, determinant_bytes=result.counter("determinant_bytes"))


def _last_of_each(parts: list[SinkResult]) -> list[SinkResult]:
    """A task's parts have their beginning in common; the last has the most rows."""
    last: dict[int, SinkResult] = {}
    for part in sorted(parts, key=lambda part: part.rows):
        last[part.begun_ns] = part
    return list(last.values())

"""Word count as a Clonos job on slot processes, with checkpoints and standbys, for comparisons."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypedDict

from benchmarks.harness.result_counter import Measured, ResultCounter, SinkResult, measured
from benchmarks.workloads.words import Workload
from clonos import Job, Timestamps
from clonos.core.values.keys import Router

ALL_ON: Final[Mapping[str, object]] = {"checkpoint_every": "1s", "standbys": 1, "parallelism": 2}
"""Options besides the defaults, which include causal logging with full sharing."""

MARK_BYTES: Final = 8
COLUMN_OPTIONS: Final[Mapping[str, object]] = {"step_records_max": 1 << 16}


def stages_of(workload: Any) -> Any:
    """Returns the module that measures stages, if requested: one per slot process, hence found by name."""
    return import_module("benchmarks.harness.stage_clock") if workload.is_staged else None


def targets(words: Sequence[str], width: int) -> dict[str, int]:
    """Returns the task of each word."""
    router = Router(width, 128)
    return {word: router.target(word) for word in words}


@dataclass(frozen=True)
class PreparedLines:
    """Source of a workload's lines, in rows or in columns, or of its keyed records."""

    workload: Any
    is_columnar: bool

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split per reader."""
        return [b"%d" % reader for reader in range(self.workload.readers)]

    def column_schema(self) -> Any | None:
        """Returns the columns of a bid; None for rows, and for lines, of which a function makes the columns."""
        is_keyed = self.is_columnar and hasattr(self.workload, "columns")
        return self.workload.columns() if is_keyed else None

    def reader(self) -> LineReader:
        """Makes the reader of a share."""
        return LineReader(self.workload, self.is_columnar)


class LineReader:
    """Reader with its share in memory before the first read. It writes its start and processor time to a file."""

    def __init__(self, workload: Any, is_columnar: bool) -> None:
        self._workload = workload
        self._stages = stages_of(workload)
        self._is_columnar = is_columnar
        self._next = 0
        self._begun_ns = self._cpu_ns = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Starts at the mark."""
        if self._stages is not None:
            self._stages.begin()
        self._report = Path(self._workload.folder) / f"read-{split.decode()}"
        self._after = self.lines_of(split)
        self._next = int.from_bytes(mark or b"", "big")

    def lines_of(self, split: bytes) -> Callable[[int, int], Any]:
        """Loads the lines of a split; returns what gives those after a position."""
        share = self._workload.share(int(split))
        found: Callable[[int, int], Any] = share.columns().after if self._is_columnar else share.after
        return found

    def read(self, records_max: int) -> Any:
        """Returns a slice; None at the end."""
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
        """Returns the number of lines read."""
        return self._next.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Does nothing, because no file is open."""


@dataclass
class CountingSink:
    """Transactional sink that counts results in the task's process, and commits the count with its checkpoint."""

    workload: Workload
    rows: list[int]
    is_columnar: bool = True
    committed: dict[int, list[SinkResult]] = field(default_factory=dict)

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Removes earlier results."""
        self.committed.clear()

    def writer(self) -> CountingWriter:
        """Makes the writer of a task."""
        return CountingWriter(self.workload, self.rows)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Collects the results in the driver. Each has all results of its task, so that the last one counts."""
        self.committed[checkpoint] = [SinkResult.decoded(part) for part in parts]


class CountingWriter:
    """Writer that counts batches of results."""

    def __init__(self, workload: Workload, rows: list[int]) -> None:
        self._workload = workload
        self._stages = stages_of(workload)
        self._rows = rows
        self._seen = 0

    def open(self, context: Any) -> None:
        """Sets the number of rows of its task."""
        if self._stages is not None:
            self._stages.begin()
        self._counter = ResultCounter(self._rows[context.index])

    def write(self, rows: list[Any]) -> None:
        """Counts a batch of results."""
        self._counter.add(rows)

    def write_columns(self, batch: Any) -> None:
        """Counts a batch of results."""
        self._counter.add_columns(batch)

    def prepare(self, checkpoint: int) -> bytes | None:
        """Returns the result of this task, if it has changed."""
        part = self._counter.part()
        if part.rows == self._seen:
            return None
        self._seen = part.rows
        if self._stages is not None:
            self._stages.leave(Path(self._workload.folder))
        return part.encoded()

    def close(self) -> None:
        """Does nothing, because no file is open."""


class Word(TypedDict):
    """Column of the words."""

    word: str


def split_words(batch: Any) -> Any:
    """Splits a batch of lines into words."""
    import pyarrow
    import pyarrow.compute

    words = pyarrow.compute.list_flatten(pyarrow.compute.split_pattern(batch.column(0), " "))
    return pyarrow.record_batch({"word": words})


def word_count(
    workload: Workload,
    shape: str,
    sink: Any,
    touch: Callable[[str], str] | None = None,
    source: PreparedLines | None = None,
    timestamps: Timestamps | None = None,
) -> Job:
    """Makes the job. ``shape``: rows or columns. ``touch``: another step for each word, in rows. ``source``: in place
    of the usual one. ``timestamps``: of the lines."""
    job = Job("words")
    lines = job.source(source or PreparedLines(workload, shape == "columns"), name="lines", timestamps=timestamps)
    if shape == "columns":
        lines.map_batches(split_words, schema=Word).key_by("word").count(name="count").sink(sink)
    else:
        words = lines.flat_map(str.split)
        words = words if touch is None else words.map(touch, name="touch")
        words.key_by(lambda word: word).count(name="count").sink(sink)
    return job


def run(
    workload: Workload,
    shape: str,
    touch: Callable[[str], str] | None = None,
    source: PreparedLines | None = None,
    timestamps: Timestamps | None = None,
    **options: Any,
) -> Measured:
    """Runs the job once and checks the result."""
    rows = [0] * workload.readers
    finals = workload.finals()
    for word, task in targets(list(finals), workload.readers).items():
        rows[task] += finals[word]
    sink = CountingSink(workload, rows)
    chosen = {**ALL_ON, **(COLUMN_OPTIONS if shape == "columns" else {}), **options}
    folder = Path(workload.folder)
    job = word_count(workload, shape, sink, touch, source, timestamps)
    result = job.run(slots="process", store=str(folder / "store"), overwrite=True, **chosen)
    counted = [part for parts in sink.committed.values() for part in parts]
    read = [SinkResult.decoded((folder / f"read-{reader}").read_bytes()) for reader in range(workload.readers)]
    found = measured(workload, read, _last_of_each(counted))
    return replace(found, determinant_bytes=result.counter("determinant_bytes"))


def _last_of_each(parts: list[SinkResult]) -> list[SinkResult]:
    """Returns the last result of each task: results of a task have the same begin, and the last has the most rows."""
    last: dict[int, SinkResult] = {}
    for part in sorted(parts, key=lambda part: part.rows):
        last[part.begun_ns] = part
    return list(last.values())

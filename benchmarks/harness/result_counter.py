"""Counter of results of the word count, used by every side in the process that made them, and its check.

It costs almost nothing: it counts rows and keeps the last ones, from which the final counts are read.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from benchmarks.workloads.words import FINAL_ROWS, Workload


class WrongResult(Exception):
    """A side has a wrong result: its figures are invalid."""


@dataclass(frozen=True, slots=True)
class SinkResult:
    """Rows that a process has handled. ``begun_ns`` and ``ended_ns``: monotonic clock of the machine.

    ``cpu_ns``: processor time of the process between its first and its last batch.
    """

    rows: int
    begun_ns: int
    ended_ns: int
    cpu_ns: int
    finals: dict[str, int]

    def encoded(self) -> bytes:
        """Encodes the result as text without a line end."""
        return json.dumps(asdict(self)).encode("ascii")

    @staticmethod
    def decoded(data: bytes) -> SinkResult:
        """Decodes a result."""
        return SinkResult(**json.loads(data))


class ResultCounter:
    """Counter of rows. ``rows_expected``: of this sink, if known; only the last rows are kept."""

    def __init__(self, rows_expected: int | None) -> None:
        self._keep_from = 0 if rows_expected is None else rows_expected - FINAL_ROWS
        self._slides = rows_expected is None
        self._rows = self._dropped = 0
        self._batches: deque[Any] = deque()
        self._begun_ns = self._ended_ns = 0
        self._cpu_begun_ns = self._cpu_ended_ns = 0

    def add(self, rows: list[tuple[str, int]]) -> None:
        """Adds a batch of (word, running count)."""
        if not self._begun_ns:
            self._begin()
        self._rows += len(rows)
        if self._rows > self._keep_from:
            self._batches.append(rows)
            self._cpu_ended_ns = time.process_time_ns()
            if self._slides:
                self._slide()
        self._ended_ns = time.monotonic_ns()

    def _slide(self) -> None:
        while self._rows - self._dropped - len(self._batches[0]) > FINAL_ROWS:
            self._dropped += len(self._batches.popleft())

    def add_columns(self, batch: Any) -> None:
        """Adds a record batch of ``word`` and ``count``."""
        if not self._begun_ns:
            self._begin()
        self._rows += batch.num_rows
        if self._rows > self._keep_from:
            self._batches.append(batch)
            self._cpu_ended_ns = time.process_time_ns()
        self._ended_ns = time.monotonic_ns()

    def _begin(self) -> None:
        self._begun_ns = time.monotonic_ns()
        self._cpu_begun_ns = time.process_time_ns()

    def part(self) -> SinkResult:
        """Returns the result so far."""
        finals: dict[str, int] = {}
        for batch in self._batches:
            rows: Iterable[tuple[str, int]] = batch
            if hasattr(batch, "num_rows"):
                rows = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            for word, count in rows:
                if count > finals.get(word, 0):
                    finals[word] = count
        cpu_ns = max(0, self._cpu_ended_ns - self._cpu_begun_ns)
        return SinkResult(self._rows, self._begun_ns, self._ended_ns, cpu_ns, finals)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one side. ``read_cpu_s``, ``count_cpu_s``: processor time of the reading and the counting processes,
    from their first batch to their last. ``determinant_bytes``: size of the causal log, if there is one."""

    words: int
    seconds: float
    read_cpu_s: float
    count_cpu_s: float
    determinant_bytes: int = 0

    @property
    def cpu_s(self) -> float:
        """Returns the processor time of all processes."""
        return self.read_cpu_s + self.count_cpu_s

    @property
    def words_per_s(self) -> float:
        """Returns the rate by wall-clock time."""
        return self.words / self.seconds

    @property
    def words_per_cpu_s(self) -> float:
        """Returns the rate per second of processor time, which other load on the machine affects less."""
        return self.words / self.cpu_s if self.cpu_s else float("nan")


class Counts(Protocol):
    """Workload whose results are checked."""

    @property
    def words(self) -> int:
        """Returns the number of expected rows."""


def measured(
    workload: Counts, read: list[SinkResult], counted: list[SinkResult], expected: Mapping[str, int] | None = None
) -> Measured:
    """Combines the reports of readers and sinks. Raises WrongResult: the counts are not those of the input."""
    rows = sum(part.rows for part in counted)
    if rows != workload.words:
        raise WrongResult(f"{rows} counts came out for {workload.words} words")
    finals: Counter[str] = Counter()
    for part in counted:
        finals.update(part.finals)
    if expected is None:
        assert isinstance(workload, Workload), "others say what they expect"
        expected = workload.finals()
    if finals != expected:
        wrong = [word for word in expected if finals.get(word) != expected[word]]
        first = wrong[0] if wrong else ""
        raise WrongResult(
            f"{len(wrong)} of {len(expected)} words have a wrong final count, for instance {first!r}:"
            f" {finals.get(first)} instead of {expected[first]}"
        )
    begun_ns = min(part.begun_ns for part in read)
    ended_ns = max(part.ended_ns for part in counted)
    read_cpu_s, count_cpu_s = (sum(part.cpu_ns for part in parts) / 1e9 for parts in (read, counted))
    return Measured(workload.words, (ended_ns - begun_ns) / 1e9, read_cpu_s, count_cpu_s)

"""Counter of results of the keyed workloads, used by every side in the process that made them."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness.result_counter import SinkResult
from benchmarks.workloads.keyed import checksum, checksum_name


class KeyedResultCounter:
    """Counter of results that keeps the last one of each key."""

    def __init__(self, rows_expected: int) -> None:
        self._expected = rows_expected
        self._rows = self._begun_ns = self._ended_ns = 0
        self._cpu_begun_ns = self._cpu_ended_ns = 0
        self._finals: dict[int, Any] = {}

    @property
    def is_complete(self) -> bool:
        """Returns whether all expected results have come."""
        return self._rows >= self._expected

    def add(self, rows: list[tuple[int, Any]]) -> None:
        """Adds a batch of (key, result)."""
        if not self._begun_ns:
            self._begun_ns, self._cpu_begun_ns = time.monotonic_ns(), time.process_time_ns()
        self._rows += len(rows)
        self._finals.update(rows)
        self._ended_ns = time.monotonic_ns()
        if self.is_complete:
            self._cpu_ended_ns = time.process_time_ns()

    def part(self) -> SinkResult:
        """Returns the result of this sink."""
        cpu_ns = max(0, self._cpu_ended_ns - self._cpu_begun_ns)
        finals = {checksum_name(self._rows): checksum(self._finals)}
        return SinkResult(self._rows, self._begun_ns, self._ended_ns, cpu_ns, finals)

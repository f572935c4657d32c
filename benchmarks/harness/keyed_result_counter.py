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
        self._last: Any = ()  # an array of the last fields by key, in columns

    @property
    def is_complete(self) -> bool:
        """Returns whether all expected results have come."""
        return self._rows >= self._expected

    def add(self, rows: list[tuple[int, Any]]) -> None:
        """Adds a batch of (key, result)."""
        self._begin()
        self._finals.update(rows)
        self._end(len(rows))

    def add_columns(self, batch: Any) -> None:
        """Adds a record batch of a key and the fields of its result. Of several results of a key the last one stays."""
        import numpy

        self._begin()
        keys = batch.column(0).to_numpy()
        fields = numpy.stack([column.to_numpy() for column in batch.columns[1:]], axis=1)
        if (keys_max := int(keys.max(initial=-1))) >= len(self._last):
            larger = numpy.zeros((2 * keys_max + 1, fields.shape[1]), fields.dtype)
            if len(self._last):
                larger[: len(self._last)] = self._last
            self._last = larger
        self._last[keys] = fields
        self._end(batch.num_rows)

    def _begin(self) -> None:
        if not self._begun_ns:
            self._begun_ns, self._cpu_begun_ns = time.monotonic_ns(), time.process_time_ns()

    def _end(self, rows: int) -> None:
        self._rows += rows
        self._ended_ns = time.monotonic_ns()
        if self.is_complete:
            self._cpu_ended_ns = time.process_time_ns()

    def part(self) -> SinkResult:
        """Returns the result of this sink."""
        cpu_ns = max(0, self._cpu_ended_ns - self._cpu_begun_ns)
        for key, fields in enumerate(self._last):
            if fields[0]:
                self._finals[key] = tuple(fields.tolist())
        finals = {checksum_name(self._rows): checksum(self._finals)}
        return SinkResult(self._rows, self._begun_ns, self._ended_ns, cpu_ns, finals)

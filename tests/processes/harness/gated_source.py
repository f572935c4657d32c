"""A source that reads as far as a file allows, which the test writes."""

from __future__ import annotations

import os
from pathlib import Path


class Gate:
    """Limit up to which sources may read. The test calls ``open_to`` and ``end``."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.open_to(0)

    def open_to(self, count: int) -> None:
        """Lets each split return its first ``count`` records."""
        self._write(f"{count} open")

    def end(self, count: int) -> None:
        """Ends each split after ``count`` records."""
        self._write(f"{count} end")

    def _write(self, text: str) -> None:
        new = Path(f"{self.path}.new")
        new.write_text(text, "utf-8")
        os.replace(new, self.path)


class GatedNumbers:
    """A source: split i of n has the numbers i, i + n, i + 2n, ..., as far as the gate is open."""

    def __init__(self, gate: Gate, batch: int = 10) -> None:
        self.path = gate.path
        self.batch = batch

    def splits(self, parallelism: int) -> list[bytes]:
        """As many as there are tasks."""
        return [b"%d %d" % (index, parallelism) for index in range(parallelism)]

    def reader(self) -> GatedReader:
        """A reader of numbers."""
        return GatedReader(self.path, self.batch)


class GatedReader:
    """Looks at the gate each time it has read so far."""

    def __init__(self, path: str, batch: int) -> None:
        self._path, self._batch = path, batch
        self._index = self._width = self._next = self._limit = 0
        self._ends = False

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens the split at the mark."""
        self._index, self._width = map(int, split.split())
        self._next = int(mark or 0)
        self._limit = self._next

    def read(self, records_max: int) -> list[int] | None:
        """Reads as far as the gate allows."""
        if self._next >= self._limit and not self._ends:
            limit, state = Path(self._path).read_text("utf-8").split()
            self._limit, self._ends = int(limit), state == "end"
        if self._next >= self._limit:
            return None if self._ends else []
        end = min(self._limit, self._next + min(records_max, self._batch))
        numbers = [self._index + self._width * position for position in range(self._next, end)]
        self._next = end
        return numbers

    def mark(self) -> bytes:
        """The next position."""
        return b"%d" % self._next

    def close(self) -> None:
        """Does nothing: nothing is open."""

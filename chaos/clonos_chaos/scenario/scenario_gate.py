"""Gated source of the shipped job: it reads as far as the runner admits, so that a run lasts as long as its faults.

The runner writes the limit into a file. Admitted records can be read again at once by any incarnation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SOURCES: Final = 2
"""Splits, each with half of the records."""


class Gate:
    """Number of records that all sources together may read. ``end`` is final."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "gate"
        self.records = 0
        self._write("open")

    def open_to(self, records: int) -> None:
        """Admits this many records, never fewer than before."""
        records -= records % SOURCES
        if records > self.records:
            self.records = records
            self._write("open")

    def end(self) -> None:
        """Ends the input."""
        self._write("end")

    def _write(self, state: str) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(f"{self.records // SOURCES} {state}", "utf-8")
        os.replace(new, self._path)


class Gated:
    """Source of (source, offset) that reads as far as the gate is open."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "gate")

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split per source."""
        return [b"%d" % source for source in range(SOURCES)]

    def reader(self) -> GatedReader:
        """Makes a reader of one split."""
        return GatedReader(Path(self.path))


class GatedReader:
    """Reader that checks the gate when it reaches the limit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limit = 0
        self._is_last = False

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Starts at the mark."""
        self._source = int(split)
        self._next = self._limit = int(mark or 0)

    def read(self, records_max: int) -> Sequence[tuple[int, int]] | None:
        """Returns admitted records."""
        if self._next >= self._limit and not self._is_last:
            limit, state = self._path.read_text("utf-8").split()
            self._limit, self._is_last = int(limit), state == "end"
        if self._next >= self._limit:
            return None if self._is_last else []
        end = min(self._limit, self._next + records_max)
        found = [(self._source, offset) for offset in range(self._next, end)]
        self._next = end
        return found

    def mark(self) -> bytes:
        """Returns the next offset."""
        return b"%d" % self._next

    def close(self) -> None:
        """Does nothing, because no file stays open."""

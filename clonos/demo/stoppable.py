"""A source that ends early when it is told to, so that a demo may last as long as somebody wishes.

That its input has ended is a choice of the reader like any other: it is recorded, and a successor ends where it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from clonos.operators.connector_contract import RecordBatch, Source, SplitReader

RECORDS_MAX: Final = 32
"""Read at once: what has been read when it is told to stop is gone through to the end, at whatever pace."""


class Stoppable:
    """Reads what ``source`` does, until the file ``stop`` exists."""

    def __init__(self, source: Source[Any], stop: Path) -> None:
        self.source = source
        self.stop = stop

    def splits(self, parallelism: int) -> list[bytes]:
        """Those of the source."""
        return self.source.splits(parallelism)

    def reader(self) -> StoppableReader:
        """A reader that looks for the file before it reads."""
        return StoppableReader(self.source.reader(), self.stop)


class StoppableReader:
    """A reader of one split at a time."""

    def __init__(self, reader: SplitReader[Any], stop: Path) -> None:
        self._reader = reader
        self._stop = stop

    def open(self, split: bytes, mark: bytes | None) -> None:
        """As the reader does."""
        self._reader.open(split, mark)

    def read(self, records_max: int) -> Sequence[Any] | RecordBatch | None:
        """None when it is over."""
        return None if self._stop.exists() else self._reader.read(min(records_max, RECORDS_MAX))

    def mark(self) -> bytes:
        """That of the reader."""
        return self._reader.mark()

    def close(self) -> None:
        """Closes the reader."""
        self._reader.close()

"""Source whose input ends on demand, so that a demo can run for a given time.

The end of the input is recorded as any choice of a source is, so a promoted standby ends at the same record.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import Source, SplitReader

RECORDS_MAX: Final = 32
"""Records of one read: a task finishes what it has read when it is stopped, which should not take long."""


class Stoppable:
    """Source that reads ``source`` until the file ``stop`` exists."""

    def __init__(self, source: Source[Any], stop: Path) -> None:
        self.source = source
        self.stop = stop

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the splits of the source."""
        return self.source.splits(parallelism)

    def reader(self) -> StoppableReader:
        """Creates a reader that checks for the file before each read."""
        return StoppableReader(self.source.reader(), self.stop)


class StoppableReader:
    """Reader of one split at a time."""

    def __init__(self, reader: SplitReader[Any], stop: Path) -> None:
        self._reader = reader
        self._stop = stop
        self._may_end = False

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark."""
        self._may_end = mark is None
        self._reader.open(split, mark)

    def read(self, records_max: int) -> Sequence[Any] | RecordBatch | None:
        """Returns the next records, None at the end of the split or if the file exists.

        The first read after a mark does not end: the task may have taken some of its records before it was replaced.
        """
        if self._may_end and self._stop.exists():
            return None
        self._may_end = True
        return self._reader.read(min(records_max, RECORDS_MAX))

    def mark(self) -> bytes:
        """Returns the mark of the reader."""
        return self._reader.mark()

    def close(self) -> None:
        """Closes the reader."""
        self._reader.close()

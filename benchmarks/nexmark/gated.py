"""The events as a source that reads as far as a file allows: kills then come at known places of the input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from clonos.connectors.columns.parquet_files import ParquetFiles, ParquetReader

ROWS_A_READ: Final = 500
"""Most rows of a read, so that a step of the input takes several."""


class Gate:
    """Limit up to which readers of all splits may read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open_to(0)

    def open_to(self, rows: int) -> None:
        """Lets each split return its first ``rows`` rows."""
        self._write(str(rows))

    def open(self) -> None:
        """Lets each split be read to its end."""
        self._write("all")

    def _write(self, text: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(text, "utf-8")
        os.replace(new, self.path)

    def limit(self) -> int | None:
        """Returns the number of rows of each split that may be read; None for all."""
        text = self.path.read_text("utf-8")
        return None if text == "all" else int(text)


class GatedFiles(ParquetFiles):
    """Parquet files after a gate."""

    def __init__(self, pattern: str, gate: Gate) -> None:
        super().__init__([pattern], columns=None, schema=None)
        self.gate = gate

    def reader(self) -> GatedReader:
        """Creates a reader of record batches."""
        return GatedReader(self.columns, bounds=self.bounds, used=self.used, gate=self.gate)


class GatedReader(ParquetReader):
    """Reader of row groups that looks at the gate whenever it has read so far."""

    def __init__(self, columns: list[str] | None, *, gate: Gate, **options: Any) -> None:
        super().__init__(columns, **options)
        self._gate = gate
        self._limit: int | None = 0

    def read(self, records_max: int) -> Any | None:
        """Returns the next rows that the gate allows, [] if it allows none at the moment, None at the end."""
        read = int.from_bytes(self.mark(), "big")
        if self._limit is not None and read >= self._limit:
            self._limit = self._gate.limit()
        if self._limit is None:
            return super().read(records_max)
        if read >= self._limit:
            return []
        return super().read(min(records_max, self._limit - read, ROWS_A_READ))

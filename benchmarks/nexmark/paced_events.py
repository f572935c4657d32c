"""The events as a source at a fixed rate, and when each result of q3 and q8 was due."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet

from benchmarks.nexmark.jobs.house import OUT_OF_ORDER, House
from benchmarks.nexmark.queries import AUCTION, PERSON
from benchmarks.workloads.paced import Pace
from clonos import Stream, Timestamps
from clonos.connectors.columns.parquet_files import ParquetFiles, ParquetReader

WINDOW_S: Final = 10
ROWS_A_READ: Final = 4_096


class PacedFiles(ParquetFiles):
    """Parquet files of which row k of each is read when it is due: k / ``lines_per_s`` of the pace after the begin."""

    def __init__(self, pattern: str, pace: Pace) -> None:
        super().__init__([pattern], columns=None, schema=None)
        self.pace = pace

    def reader(self) -> PacedReader:
        """Creates a reader of record batches."""
        return PacedReader(self.columns, bounds=self.bounds, used=self.used, pace=self.pace)


class PacedReader(ParquetReader):
    """Reader of the rows that are due."""

    def __init__(self, columns: list[str] | None, *, pace: Pace, **options: Any) -> None:
        super().__init__(columns, **options)
        self._pace = pace
        self._begun_ns = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark."""
        self._begun_ns = self._pace.begun_ns()
        super().open(split, mark)

    def read(self, records_max: int) -> Any | None:
        """Returns the rows that are due, [] if there are none, None at the end."""
        read = int.from_bytes(self.mark(), "big")
        due = min(self._pace.lines, int((time.monotonic_ns() - self._begun_ns) * self._pace.lines_per_s / 1e9))
        if read >= due and read < self._pace.lines:
            return []
        return super().read(min(records_max, ROWS_A_READ, max(1, due - read)))


@dataclass(frozen=True)
class PacedHouse(House):
    """Auction house whose events come at a fixed rate."""

    pace: Pace

    def events(self, *columns: str, is_timed: bool = False) -> Stream[Any]:
        """Returns all events."""
        timestamps = Timestamps("date_time", out_of_order=OUT_OF_ORDER) if is_timed else None
        source = PacedFiles(str(self.folder / "*.parquet"), self.pace)
        return self.job.source(source, name="events", timestamps=timestamps)


@dataclass(frozen=True)
class Arrivals:
    """Rows of the files in which persons and auctions come. ``opened``: the first auction of a seller in a window."""

    persons: dict[int, int] = field(default_factory=dict)
    auctions: dict[int, int] = field(default_factory=dict)
    sellers: dict[int, int] = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)
    opened: dict[tuple[int, int], int] = field(default_factory=dict)

    @staticmethod
    def of(events: Path) -> Arrivals:
        """Reads the files of events."""
        found = Arrivals()
        for path in sorted(events.glob("*.parquet")):
            table = pyarrow.parquet.read_table(path, columns=["kind", "id", "auction_id", "seller", "date_time"])
            for row, event in enumerate(table.to_pylist()):
                window = int(event["date_time"].timestamp()) // WINDOW_S
                if event["kind"] == PERSON:
                    found.persons[event["id"]], found.windows[event["id"]] = row, window
                elif event["kind"] == AUCTION:
                    found.auctions[event["auction_id"]], found.sellers[event["auction_id"]] = row, event["seller"]
                    opened = (event["seller"], window)
                    found.opened[opened] = min(row, found.opened.get(opened, row))
        return found

    def of_sold(self, auction: int) -> int:
        """Returns the row with which a result of q3 was due: that of the auction or of its seller."""
        return max(self.auctions[auction], self.persons[self.sellers[auction]])

    def of_seller(self, person: int) -> int:
        """Returns the row with which a result of q8 was due: that of the person or of the first auction."""
        return max(self.persons[person], self.opened[person, self.windows[person]])

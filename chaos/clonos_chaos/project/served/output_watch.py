"""Watch over the immediate output of a run: when it grew, and for how long it did not."""

from __future__ import annotations

import sqlite3
import threading
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Final

from clonos.io.system.wall_clock import wall_ns

LOOK_EVERY_S: Final = 0.01


class OutputWatch:
    """Thread that looks at a table of SQLite. ``grown_ns``: instants, by the wall clock, at which it had more rows
    than ever before. Rows that replace withdrawn ones do not count. ``looks``: how often it has looked."""

    def __init__(self, table: Path) -> None:
        self.grown_ns: list[int] = []
        self.looks = 0
        self._table = table
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="output watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._is_over.set()
        self._thread.join()

    def silence_ns(self, since_ns: int) -> int | None:
        """Returns how long after an instant the output grew next; None if it never did."""
        place = bisect_right(self.grown_ns, since_ns)
        return self.grown_ns[place] - since_ns if place < len(self.grown_ns) else None

    def longest_gap_ns(self, since_ns: int, until_ns: int) -> tuple[int, int]:
        """Returns begin and end of the longest time without growth that began between two instants."""
        first, last = bisect_right(self.grown_ns, since_ns), bisect_right(self.grown_ns, until_ns)
        instants = [since_ns, *self.grown_ns[first : last + 1]]
        return max(pairwise(instants), key=lambda gap: gap[1] - gap[0], default=(since_ns, since_ns))

    def _look(self) -> None:
        while not self._table.exists():
            if self._is_over.wait(LOOK_EVERY_S):
                return
        highest = 0
        with closing(sqlite3.connect(f"file:{self._table}?mode=ro", uri=True)) as connection:
            while not self._is_over.wait(LOOK_EVERY_S):
                try:
                    last = connection.execute("SELECT max(rowid) FROM rows").fetchone()[0] or 0
                except sqlite3.OperationalError:  # the table is not there yet, or a writer holds the lock
                    continue
                self.looks += 1
                if last > highest:
                    highest = last
                    self.grown_ns.append(wall_ns())


def unavailable_ns(grown_ns: list[int], excluded: Iterable[tuple[int, int]], at_most_ns: int) -> tuple[int, int]:
    """Returns the time in which the newest row was older than ``at_most_ns``, and the whole time, without the spans
    ``excluded``."""
    spans = sorted(excluded)
    unavailable = whole = 0
    for begun, ended in pairwise(grown_ns):
        remaining = ended - begun - sum(max(0, min(ended, until) - max(begun, since)) for since, until in spans)
        whole += remaining
        unavailable += max(0, remaining - at_most_ns)
    return unavailable, whole

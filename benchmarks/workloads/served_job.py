"""Job that a server runs in a benchmark: numbers at a fixed rate, counted by key, into an immediate sink with times.

The server is given this file alone. Its output is in the working folder of the job.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clonos import Job, WriterIdentity
from clonos.operators.connector_contract import Registration

READERS: Final = 2
PER_READER_S: Final = 2_000
KEYS: Final = 100
ENTRY: Final = "<QQQ"
"""Number after the rows of a write, sum of their counts, monotonic ns."""

FILES: Final = "counted-*"


@dataclass(frozen=True, slots=True)
class PacedNumbers:
    """Source of numbers at a fixed rate, without an end."""

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split per reader."""
        return [b"%d" % reader for reader in range(READERS)]

    def reader(self) -> PacedReader:
        """Makes the reader of a split."""
        return PacedReader()


class PacedReader:
    """Reader of the numbers that are due since its first opening. It catches up after a pause."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Starts at the mark: the next number, and when number 0 was due."""
        now_ns = time.monotonic_ns()
        self._next, self._begun_ns = struct.unpack("<QQ", mark) if mark else (0, now_ns)

    def read(self, records_max: int) -> list[int] | None:
        """Returns the numbers that are due, at most ``records_max``."""
        due = (time.monotonic_ns() - self._begun_ns) * PER_READER_S // 1_000_000_000
        first, self._next = self._next, max(self._next, min(due, self._next + records_max))
        return list(range(first, self._next))

    def mark(self) -> bytes:
        """Returns the position."""
        return struct.pack("<QQ", self._next, self._begun_ns)

    def close(self) -> None:
        """Does nothing, because no file is open."""


@dataclass(frozen=True, slots=True)
class CountedSink:
    """Immediate sink of (key, count) into a file per task. ``folder``: that of the job, which is not that of slots on
    Spark."""

    folder: str

    def immediate_writer(self) -> CountedFile:
        """Makes a connection to the file of the task that registers."""
        return CountedFile(Path(self.folder))


class CountedFile:
    """Registered connection to a file. A new generation writes the rows again that follow its checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Takes the file over from the earlier incarnation."""
        path = self._folder / f"counted-{identity.task_name.replace('/', '-')}"
        generation = self._folder / f"generation-{identity.task_name.replace('/', '-')}"
        known = generation.read_text("ascii") if generation.exists() else ""
        is_same = known == str(identity.generation)
        generation.write_text(str(identity.generation), "ascii")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        written = [*entries(path)]
        self._next = written[-1][0] if written and is_same else restored_number
        return Registration(self._next, None)

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Appends one entry for the new rows; returns the next number."""
        new = rows[max(0, self._next - first_number) :]
        if new:
            self._next += len(new)
            total = sum(count for _, count in new)
            os.write(self._file, struct.pack(ENTRY, self._next, total, time.monotonic_ns()))
        return self._next

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def entries(path: Path) -> Iterator[tuple[int, int, int]]:
    """Yields the writes of a file."""
    data = path.read_bytes()
    return struct.iter_unpack(ENTRY, data[: len(data) // struct.calcsize(ENTRY) * struct.calcsize(ENTRY)])


def key_of(number: int) -> int:
    """Returns the key of a number."""
    return number % KEYS


job = Job("served", parallelism=2, checkpoint_every="1s", standbys=1, slots="process")
numbers = job.source(PacedNumbers(), name="read")
numbers.key_by(key_of).count(name="count").sink(CountedSink(os.getcwd()))

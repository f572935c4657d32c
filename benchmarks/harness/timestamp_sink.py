"""Sink for measurements: a file per sink task, to which each write appends an entry with a timestamp.

An entry is one system call with the numbers of its rows, the time, and the marks among the rows. Numbers make it
exactly-once: repeated rows are dropped, and the next number is read from the file.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clonos import WriterFenced, WriterIdentity
from clonos.operators.connector_contract import Registration

MARK: Final = "@"
"""Prefix of marks, which are words "@READER.NUMBER", each read once."""

_ENTRY: Final = "<QQQQQ"  # first number, rows, sum of their counts, monotonic ns, marks
_MARK: Final = "<II"  # reader, number
_TAIL: Final = "<Q"  # number after its rows: what a successor reads, whatever the length of the file
_ENTRY_BYTES: Final = struct.calcsize(_ENTRY)
_MARK_BYTES: Final = struct.calcsize(_MARK)
_TAIL_BYTES: Final = struct.calcsize(_TAIL)


class Torn(Exception):
    """A write is incomplete: a full disk can do that, a signal cannot on a local disk."""


class RolledBack(Exception):
    """The job rolled back: more processes died at once than it survives without a rollback."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One write. ``weight``: sum of its counts."""

    first_number: int
    rows: int
    weight: int
    at_ns: int
    marks: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TimestampSink:
    """Immediate sink of (word, count) into files of a folder."""

    folder: str

    def immediate_writer(self) -> TimestampFile:
        """Makes a connection to the file of the task that registers."""
        return TimestampFile(Path(self.folder))


class TimestampFile:
    """Registered connection to a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1
        self._next = 0

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Takes the file over from the earlier incarnation. Raises RolledBack: this is another generation."""
        path = file_of(self._folder, identity.task_name)
        generation = path.with_suffix(".generation")
        if generation.exists() and generation.read_text() != str(identity.generation):
            raise RolledBack(
                f"{identity.task_name} was rolled back: rows from {restored_number} on may be written twice, so that"
                " the figures of this run are invalid. Were a task and all its keepers killed at once?"
            )
        generation.write_text(str(identity.generation))
        self._owner, self._me = path.with_suffix(".owner"), b"%d" % identity.incarnation
        self._owner.write_bytes(self._me)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._next = _end_of(self._file)
        return Registration(self._next, None)

    def write(self, first_number: int, rows: list[tuple[str, int]]) -> int:
        """Appends one entry with the new rows; returns the next number."""
        if self._owner.read_bytes() != self._me:
            raise WriterFenced
        known = self._next - first_number
        if known > 0:
            first_number, rows = self._next, rows[known:]
        assert first_number == self._next or not rows, (first_number, self._next)
        if rows:
            marks = [word[1:].split(".") for word, _ in rows if word[0] == MARK]
            weight = sum(count for _, count in rows)
            entry = [struct.pack(_ENTRY, first_number, len(rows), weight, time.monotonic_ns(), len(marks))]
            entry += [struct.pack(_MARK, int(reader), int(number)) for reader, number in marks]
            self._next += len(rows)
            entry.append(struct.pack(_TAIL, self._next))
            os.write(self._file, b"".join(entry))
        return self._next

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def file_of(folder: Path, task_name: str) -> Path:
    """Returns the file of a task."""
    return folder / f"ledger-{task_name.replace('/', '-')}"


def entries(path: Path) -> Iterator[Entry]:
    """Yields the entries of a file. Raises Torn."""
    data: Any = path.read_bytes() if path.exists() else b""
    at = 0
    while at < len(data):
        head = data[at : at + _ENTRY_BYTES].ljust(_ENTRY_BYTES, b"\0")
        first_number, rows, weight, at_ns, count = struct.unpack(_ENTRY, head)
        end = at + _ENTRY_BYTES + count * _MARK_BYTES
        if data[end : end + _TAIL_BYTES] != struct.pack(_TAIL, first_number + rows):
            raise Torn(f"{path} is torn at byte {at}: a write is incomplete, and this run is invalid")
        marks = list(struct.iter_unpack(_MARK, data[at + _ENTRY_BYTES : end]))
        yield Entry(first_number, rows, weight, at_ns, marks)
        at = end + _TAIL_BYTES


def _end_of(file: int) -> int:
    """Returns the number after the last row."""
    size_bytes = os.fstat(file).st_size
    if size_bytes == 0:
        return 0
    (number,) = struct.unpack(_TAIL, os.pread(file, _TAIL_BYTES, size_bytes - _TAIL_BYTES))
    return int(number)

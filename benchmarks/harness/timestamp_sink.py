"""An outside for measurements: a file for each sink task, to which every write adds one entry, in one system call.

An entry says which rows came, when, and which marks were among them. Numbers make it exactly-once, as of any outside:
what was written before is dropped, and where the next row is to begin is read from the file.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clonos import OutsideFenced, OutsideIdentity
from clonos.operators.connector_contract import Registration

MARK: Final = "@"
"""How words begin that are marks: "@READER.NUMBER", each read once."""

_ENTRY: Final = "<QQQQQ"  # first number, rows, sum of their counts, monotonic ns, marks
_MARK: Final = "<II"  # reader, number
_TAIL: Final = "<Q"  # number behind its rows: what a successor reads, whatever the length of the file
_ENTRY_BYTES: Final = struct.calcsize(_ENTRY)
_MARK_BYTES: Final = struct.calcsize(_MARK)
_TAIL_BYTES: Final = struct.calcsize(_TAIL)


class Torn(Exception):
    """A write was cut: a signal does not do that to one system call on a local disk, a full disk may."""


class RolledBack(Exception):
    """More died at once than a measured job survives without a trace."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One write. ``weight``: the sum of its counts."""

    first_number: int
    rows: int
    weight: int
    at_ns: int
    marks: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TimestampSink:
    """An immediate sink of (word, count) into files of a folder."""

    folder: str

    def outside(self) -> TimestampFile:
        """A connection to the file of whoever registers."""
        return TimestampFile(Path(self.folder))


class TimestampFile:
    """One registered connection."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1
        self._next = 0

    def register(self, identity: OutsideIdentity, restored_number: int) -> Registration:
        """Takes the file over from the incarnation before."""
        path = file_of(self._folder, identity.task_name)
        generation = path.with_suffix(".generation")
        if generation.exists() and generation.read_text() != str(identity.generation):
            raise RolledBack(
                f"{identity.task_name} was rolled back: rows from {restored_number} on may have left twice, and figures"
                " of this run say nothing. Were a task and all its keepers killed at once?"
            )
        generation.write_text(str(identity.generation))
        self._owner, self._me = path.with_suffix(".owner"), b"%d" % identity.incarnation
        self._owner.write_bytes(self._me)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._next = _end_of(self._file)
        return Registration(self._next, None)

    def write(self, first_number: int, rows: list[tuple[str, int]]) -> int:
        """One entry."""
        if self._owner.read_bytes() != self._me:
            raise OutsideFenced
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
        """Lets the file go."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def file_of(folder: Path, task_name: str) -> Path:
    """The file of a task."""
    return folder / f"ledger-{task_name.replace('/', '-')}"


def entries(path: Path) -> Iterator[Entry]:
    """What a file holds. Raises Torn."""
    data: Any = path.read_bytes() if path.exists() else b""
    at = 0
    while at < len(data):
        head = data[at : at + _ENTRY_BYTES].ljust(_ENTRY_BYTES, b"\0")
        first_number, rows, weight, at_ns, count = struct.unpack(_ENTRY, head)
        end = at + _ENTRY_BYTES + count * _MARK_BYTES
        if data[end : end + _TAIL_BYTES] != struct.pack(_TAIL, first_number + rows):
            raise Torn(f"{path} is torn at byte {at}: a write was not done whole, and this run says nothing")
        marks = list(struct.iter_unpack(_MARK, data[at + _ENTRY_BYTES : end]))
        yield Entry(first_number, rows, weight, at_ns, marks)
        at = end + _TAIL_BYTES


def _end_of(file: int) -> int:
    """The number behind the last row."""
    size_bytes = os.fstat(file).st_size
    if size_bytes == 0:
        return 0
    (number,) = struct.unpack(_TAIL, os.pread(file, _TAIL_BYTES, size_bytes - _TAIL_BYTES))
    return int(number)

"""Log of events in a store: lines in numbered objects, of which the oldest are removed.

No store appends, so the last object is written again with each line, up to ``SEGMENT_BYTES_MAX``. Each writer creates
objects of its own and never writes another's: a driver that was paused spoils nothing when it wakes up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from clonos.io.store.object_files import ObjectFiles, ObjectMissing

SEGMENT_BYTES_MAX: Final = 16 << 10
SEGMENTS_MAX: Final = 32
"""Objects of one log, which has 512 KiB at most."""

PENDING_MAX: Final = 2_000
"""Lines that wait for a store that fails. Older ones are dropped."""


class SegmentedLog:
    """Writer of a log. One thread at a time calls ``write``."""

    def __init__(
        self,
        files: ObjectFiles,
        folder: str,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        segments_max: int = SEGMENTS_MAX,
    ) -> None:
        self._files, self._folder = files, folder
        self._segment_bytes_max, self._segments_max = segment_bytes_max, segments_max
        self._number = 0  # of the object that is written; 0 before the first
        self._content = b""  # of that object
        self._pending: deque[bytes] = deque(maxlen=PENDING_MAX)

    def write(self, lines: Iterable[bytes]) -> None:
        """Writes lines, which are durable on return, after those that an earlier call could not write.

        Raises: StoreFailed: the lines are written by the next call.
        """
        self._pending.extend(lines)
        while self._pending:
            content, count = self._content, 0
            for line in self._pending:
                if content and len(content) + len(line) >= self._segment_bytes_max:
                    break
                content, count = content + line + b"\n", count + 1
            if count and self._number:
                self._files.write(self._name(self._number), content)
            elif count:
                self._create(content)
            else:  # the object is full
                self._number, self._content = 0, b""
                continue
            self._content = content
            for _ in range(count):
                self._pending.popleft()

    def _create(self, content: bytes) -> None:
        """Creates the next object, and removes old ones."""
        names = names_of(self._files, self._folder)
        number = _number_of(names[-1]) + 1 if names else 1
        while not self._files.create_if_absent(self._name(number), content):
            number += 1
        self._number = number
        for name in names[: max(0, len(names) + 1 - self._segments_max)]:
            self._files.delete(name)

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:08}.jsonl"


def names_of(files: ObjectFiles, folder: str) -> list[str]:
    """Returns the names of the objects of a log, the oldest first. Raises: StoreFailed."""
    return [name for name in files.list(folder) if name.endswith(".jsonl") and _number_of(name)]


def lines_of(files: ObjectFiles, folder: str) -> list[bytes]:
    """Returns the lines of a log, the oldest first. A line that was written twice, because the store did not answer,
    is there once. Raises: StoreFailed."""
    found: dict[bytes, None] = {}
    for name in names_of(files, folder):
        with suppress(ObjectMissing):  # a running driver has removed it
            found.update(dict.fromkeys(files.read(name).splitlines()))
    return list(found)


def _number_of(name: str) -> int:
    """Returns the number of an object; 0 for the name of another file."""
    stem = name.rpartition("/")[2].partition(".")[0]
    return int(stem) if stem.isdecimal() else 0

"""Spilled segments of in-flight logs on the slot's local disk: one file each, written and read by one background
thread.

A file is ``checksum (xxh3, 8 bytes) | length of the content (8 bytes) | LZ4 frame of the content: (format, segment,
count, length of each payload, payloads)``, all little-endian. Files are not synced, because they live no longer than
their process. Loads come before deletions, because a receiver waits for them; deletions come before writes, because
they free disk space.
"""

from __future__ import annotations

import os
import shutil
import struct
import threading
from collections import deque
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

import xxhash

from clonos.core.model.errors import EnvironmentFault
from clonos.io.lz4_frames import FrameDamaged, compress, decompress
from clonos.io.process.fault_points import FaultPoint, FaultPoints

SPILL_FORMAT: Final = 2
CLOSE_TIMEOUT_S: Final = 10.0
"""Seconds that the thread has to finish its current work when the folder is closed."""

_CHECKSUM: Final = struct.Struct("<Q")
_LENGTH: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<IQI")  # format, segment, count

OnSpilled = Callable[[int, int, str], None]
"""Callback after a write: (segment, stored bytes, error)."""
OnLoaded = Callable[[int, list[bytes] | None, str], None]
"""Callback after a load: (segment, payloads or None, error)."""


class SegmentDamaged(EnvironmentFault):
    """A file does not have the content that was written to it."""

    path: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.path} is damaged: expected {self.expected}, found {self.actual}. Check this disk for errors."


def encode_segment(segment: int, payloads: list[bytes]) -> tuple[bytes, bytes]:
    """Returns checksum and body of a segment's file."""
    lengths = struct.pack(f"<{len(payloads)}I", *map(len, payloads))
    head = _HEAD.pack(SPILL_FORMAT, segment, len(payloads))
    content = b"".join((head, lengths, *payloads))
    body = _LENGTH.pack(len(content)) + compress(content)
    return _CHECKSUM.pack(xxhash.xxh3_64_intdigest(body)), body


def decode_segment(segment: int, data: bytes, path: str) -> list[bytes]:
    """Returns the payloads in ``data``. ``path``: name of the file, for errors.

    Raises: SegmentDamaged when ``data`` does not have the payloads of ``segment``.
    """
    if len(data) < _CHECKSUM.size + _LENGTH.size:
        raise SegmentDamaged(path, "a checksum and a length", f"{len(data)} bytes")
    (expected,) = _CHECKSUM.unpack_from(data)
    body = memoryview(data)[_CHECKSUM.size :]
    actual = xxhash.xxh3_64_intdigest(body)
    if actual != expected:
        raise SegmentDamaged(path, f"checksum {expected:016x}", f"{actual:016x}")
    (length_bytes,) = _LENGTH.unpack_from(body)
    try:
        content = decompress(body[_LENGTH.size :], length_bytes)
    except FrameDamaged as damaged:
        raise SegmentDamaged(path, f"a frame of {length_bytes} bytes", str(damaged)) from None
    if length_bytes < _HEAD.size:
        raise SegmentDamaged(path, f"a head of {_HEAD.size} bytes", f"{length_bytes} bytes")
    number, stored, count = _HEAD.unpack_from(content)
    if (number, stored) != (SPILL_FORMAT, segment):
        raise SegmentDamaged(path, f"format {SPILL_FORMAT}, segment {segment}", f"format {number}, segment {stored}")
    start = _HEAD.size + 4 * count
    if start > length_bytes:
        raise SegmentDamaged(path, f"the lengths of {count} payloads", f"{length_bytes} bytes")
    lengths = struct.unpack_from(f"<{count}I", content, _HEAD.size)
    if start + sum(lengths) != length_bytes:
        raise SegmentDamaged(path, f"{start + sum(lengths)} bytes", f"{length_bytes} bytes")
    return [content[first:last] for first, last in pairwise(accumulate(lengths, initial=start))]


class SpillFolder:
    """Implementation of ``clonos.core.ports.effect_collector.SpillStore`` by a folder.

    It is created at the first write and removed by ``close``.

    The background thread starts with the first request. It calls ``on_spilled`` and ``on_loaded``, which must only
    enqueue the outcome for the slot's thread. Only the thread that created this object may call ``close``.
    """

    def __init__(
        self, folder: Path, on_spilled: OnSpilled, on_loaded: OnLoaded, faults: FaultPoints | None = None
    ) -> None:
        self._folder = folder
        self._faults = faults
        self._on_spilled = on_spilled
        self._on_loaded = on_loaded
        self._changed = threading.Condition()
        self._writes: dict[int, list[bytes]] = {}
        self._loads: deque[int] = deque()
        self._deletes: deque[int] = deque()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def write_segment(self, segment: int, payloads: list[bytes]) -> None:
        """Queues a write."""
        with self._changed:
            self._writes[segment] = payloads
            self._wake()

    def load(self, segment: int) -> None:
        """Queues a load, ahead of deletions and writes."""
        with self._changed:
            self._loads.append(segment)
            self._wake()

    def delete(self, segment: int) -> None:
        """Queues a deletion; cancels the write of a segment that is still queued."""
        with self._changed:
            if self._writes.pop(segment, None) is not None:
                return
            if segment in self._loads:
                self._loads.remove(segment)
            self._deletes.append(segment)
            self._wake()

    def close(self) -> None:
        """Ends the thread and removes the files. Pending requests get no answer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)  # a file that remains is removed with the slot's folder

    # ------------------------------------------------------------------ the thread

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="clonos-spill", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._loads or self._deletes or self._writes)
            if self._is_closed:
                return None
            if self._loads:
                segment = self._loads.popleft()
                return lambda: self._load(segment)
            if self._deletes:
                segment = self._deletes.popleft()
                return lambda: self._remove(segment)
            segment = next(iter(self._writes))
            payloads = self._writes.pop(segment)
            return lambda: self._write(segment, payloads)

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:08d}.segment"

    def _remove(self, segment: int) -> None:
        try:
            self._path(segment).unlink(missing_ok=True)
        except OSError:  # the file is never read, and is removed with the slot's folder
            pass

    def _write(self, segment: int, payloads: list[bytes]) -> None:
        path = self._path(segment)
        if self._faults is not None:
            self._faults.reach(FaultPoint.SPILLING, detail=str(segment))
        try:
            checksum, body = encode_segment(segment, payloads)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(checksum)
                file.write(body)
        except (OSError, MemoryError) as error:
            self._remove(segment)
            self._on_spilled(segment, 0, f"{path} cannot be written: {str(error) or 'out of memory'}")
            return
        self._on_spilled(segment, len(checksum) + len(body), "")

    def _load(self, segment: int) -> None:
        path = self._path(segment)
        try:
            payloads = decode_segment(segment, path.read_bytes(), str(path))
        except SegmentDamaged as error:
            self._on_loaded(segment, None, str(error))
        except (OSError, MemoryError) as error:
            self._on_loaded(segment, None, f"{path} cannot be read: {str(error) or 'out of memory'}")
        else:
            self._on_loaded(segment, payloads, "")

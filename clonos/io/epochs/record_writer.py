"""Writer of a record of an epoch. The folder appears whole, under its name, or not at all.

Of the records that are made while a job runs, the last ones of each task stay.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_128

from clonos.core.wire.capture_messages import Elements, framed, length_of
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.epochs.record_parts import (
    HEAD,
    EmittedOutput,
    Input,
    PartDigest,
    RecordedWay,
    RecordHead,
    RecordPart,
    SourceFile,
    SourceRecords,
    StatePiece,
)
from clonos.io.system.wall_clock import wall_ns

UNFINISHED: Final = ".part"
"""End of the name of a folder whose record is not whole."""

GIVEN_UP: Final = "given-up.jsonl"
"""File beside the records of a task: epochs that were not recorded, and why."""

COPIED_BYTES: Final = 1 << 18
"""Bytes of a page that are copied at once: they fit into the cache of a processor."""

_encoder = msgspec.msgpack.Encoder()


class _PartFile:
    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self._hash, self._size_bytes = xxh3_128(), 0

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self._hash.update(content)
        self._size_bytes += len(content)

    def close(self) -> PartDigest:
        self._file.close()
        return PartDigest(self._size_bytes, self._hash.hexdigest())


class RecordWriter:
    """Writes the parts of one record, then its head. As a context it removes what was not finished.

    ``written_bytes``: of the state, the log and the input so far.
    """

    def __init__(self, folder: Path) -> None:
        """``folder``: of the record, which must not exist. Its parents are created, for the user alone.

        Raises: OSError.
        """
        self.folder = folder
        self._unfinished = folder.with_name(folder.name + UNFINISHED)
        folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(self._unfinished, ignore_errors=True)
        self._unfinished.mkdir(mode=0o700)
        self._files = {part: _PartFile(self._unfinished / part) for part in RecordPart}
        self.written_bytes = 0

    def job(self, image: bytes) -> None:
        """Writes the compiled job."""
        self._files[RecordPart.JOB].write(image)

    def state(self, piece: StatePiece) -> None:
        """Appends a piece of the state."""
        self._append(RecordPart.STATE, _encoder.encode(piece))

    def log(self, data: bytes) -> None:
        """Appends to the log."""
        self._files[RecordPart.LOG].write(data)
        self.written_bytes += len(data)

    def input(self, piece: Input) -> None:
        """Appends to the input."""
        match piece:
            case Elements(payload=data):
                self._append_framed(RecordPart.INPUT, replace(piece, payload=b""), data)
            case SourceRecords(batch=data):
                self._append_framed(RecordPart.INPUT, replace(piece, batch=b""), data)
            case _:
                self._append(RecordPart.INPUT, _encoder.encode(piece))

    def input_page(self, file: Path, size_bytes: int) -> None:
        """Appends encoded input: the first bytes of a file. Raises: OSError, if it has fewer."""
        part, left_bytes = self._files[RecordPart.INPUT], size_bytes
        with file.open("rb", buffering=0) as page:
            while left_bytes:
                content = page.read(min(left_bytes, COPIED_BYTES))
                if not content:
                    raise OSError(f"{file} lacks its last {left_bytes} bytes")
                part.write(content)
                left_bytes -= len(content)
        self.written_bytes += size_bytes

    def expected(self, emitted: EmittedOutput) -> None:
        """Appends to the expected output."""
        self._append(RecordPart.EXPECTED, _encoder.encode(emitted))

    def source(self, file: SourceFile) -> None:
        """Appends a source file."""
        self._append(RecordPart.SOURCES, _encoder.encode(file))

    def _append_framed(self, part: RecordPart, head: msgspec.Struct, data: bytes) -> None:
        begin, data = framed(head, data)
        self._files[part].write(begin)
        self._files[part].write(data)
        self.written_bytes += len(begin) + len(data)

    def _append(self, part: RecordPart, content: bytes) -> None:
        self._files[part].write(length_of(content))
        self._files[part].write(content)
        self.written_bytes += len(content)

    def finish(self, head: RecordHead) -> None:
        """Writes the head with the digests of the parts, and gives the folder its name.

        A record with this name is replaced. Raises: OSError.
        """
        parts = {str(part): file.close() for part, file in self._files.items()}
        self._files = {}
        content = msgspec.json.format(msgspec.json.encode(replace(head, parts=parts)), indent=2)
        file = _PartFile(self._unfinished / HEAD)
        file.write(content)
        file.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._unfinished.rename(self.folder)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._unfinished, ignore_errors=True)


class EpochGivenUp(msgspec.Struct, frozen=True):
    """Line of ``GIVEN_UP``: an epoch that has no record."""

    epoch: int
    reason: str
    written_ns: int  # since the Unix epoch


class _Written(msgspec.Struct, frozen=True):
    way: RecordedWay
    written_ns: int


def rotate(folder: Path, count: int) -> None:
    """Removes the oldest records that were made while the job ran, but the last ``count``. Other records stay.

    Raises: OSError: the folder cannot be read.
    """
    found = []
    for entry in folder.iterdir():
        try:
            head = msgspec.json.decode((entry / HEAD).read_bytes(), type=_Written)
        except (OSError, *DECODE_ERRORS):
            continue  # no record, or one of another version
        if head.way is RecordedWay.RUNNING:
            found.append((head.written_ns, entry))
    for _, entry in sorted(found)[:-count]:
        shutil.rmtree(entry, ignore_errors=True)


def note_given_up(folder: Path, epoch: int, reason: str, count: int) -> None:
    """Notes that an epoch has no record, beside the last ``count - 1`` notes. Raises: OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / GIVEN_UP
    lines = file.read_bytes().splitlines()[1 - count or None :] if file.exists() and count > 1 else []
    lines.append(msgspec.json.encode(EpochGivenUp(epoch, reason, wall_ns())))
    unfinished = file.with_name(file.name + ".part")
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as written:
        written.write(b"".join(line + b"\n" for line in lines))
    unfinished.rename(file)

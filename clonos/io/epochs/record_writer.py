"""Writer of a record of an epoch. The folder appears whole, under its name, or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import msgspec
from msgspec.structs import replace

from clonos.io.epochs.record_parts import (
    HEAD,
    EmittedOutput,
    Input,
    PartDigest,
    RecordHead,
    RecordPart,
    SourceFile,
    StatePiece,
    frame,
)

UNFINISHED: Final = ".part"
"""End of the name of a folder whose record is not whole."""

_encoder = msgspec.msgpack.Encoder()


class _PartFile:
    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self._hash, self._size_bytes = hashlib.sha256(), 0

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
        self._append(RecordPart.INPUT, _encoder.encode(piece))

    def expected(self, emitted: EmittedOutput) -> None:
        """Appends to the expected output."""
        self._append(RecordPart.EXPECTED, _encoder.encode(emitted))

    def source(self, file: SourceFile) -> None:
        """Appends a source file."""
        self._append(RecordPart.SOURCES, _encoder.encode(file))

    def _append(self, part: RecordPart, content: bytes) -> None:
        self._files[part].write(frame(content))
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

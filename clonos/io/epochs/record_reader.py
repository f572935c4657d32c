"""Reader of a record of an epoch: its head, and its parts with their digests checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from xxhash import xxh3_128

from clonos.core.model.errors import ClonosError
from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.io.epochs.record_parts import (
    HEAD,
    RECORD_FORMAT,
    EmittedOutput,
    Input,
    RecordDamaged,
    RecordHead,
    RecordPart,
    SourceFile,
    StatePiece,
    frames_in,
)

READ_BYTES = 1 << 20

Piece = TypeVar("Piece", StatePiece, Input, EmittedOutput, SourceFile)


class _Format(msgspec.Struct):
    format: int


_state_decoder = msgspec.msgpack.Decoder(StatePiece)
_input_decoder = msgspec.msgpack.Decoder(Input)
_emitted_decoder = msgspec.msgpack.Decoder(EmittedOutput)
_source_decoder = msgspec.msgpack.Decoder(SourceFile)


def read_head(folder: Path) -> RecordHead:
    """Returns the head of a record, whose parts are not looked at.

    Raises: RecordDamaged: the folder holds no record. FormatUnknown: another version wrote it.
    """
    try:
        content = (folder / HEAD).read_bytes()
        check_format(f"the record {folder}", msgspec.json.decode(content, type=_Format).format, RECORD_FORMAT)
        return msgspec.json.decode(content, type=RecordHead)
    except FileNotFoundError:
        if not folder.exists():
            raise RecordDamaged(str(folder), "there is no such folder") from None
        raise RecordDamaged(str(folder), f"it has no {HEAD}, so it is not a record, or was not finished") from None
    except OSError as error:
        raise RecordDamaged(str(folder), str(error)) from None
    except DECODE_ERRORS as error:
        raise RecordDamaged(str(folder), f"its {HEAD} is malformed: {error}") from None


def lacking(folder: Path) -> tuple[str, ...]:
    """Returns sentences about what a record lacks; none if it cannot be read from here."""
    try:
        return read_head(folder).missing
    except ClonosError:
        return ()


class EpochRecord:
    """Record in a folder. Nothing in it is unpickled here: ``job`` and the batches of a source are the bytes."""

    def __init__(self, folder: Path) -> None:
        """Reads the head and checks the parts.

        Raises: RecordDamaged: the folder holds no record, or not all of it. FormatUnknown: another version wrote it.
        """
        self.folder = folder
        self.head = read_head(folder)
        for part in RecordPart:
            self._check(part)

    def _check(self, part: RecordPart) -> None:
        written = self.head.parts.get(part)
        is_earlier = written is not None and bool(written.sha256)
        hashed, size_bytes = hashlib.sha256() if is_earlier else xxh3_128(), 0
        try:
            with (self.folder / part).open("rb") as file:
                while content := file.read(READ_BYTES):
                    hashed.update(content)
                    size_bytes += len(content)
        except OSError as error:
            raise RecordDamaged(str(self.folder), f"its part {part} cannot be read: {error.strerror}") from None
        if written is None or (written.bytes, written.sha256 or written.xxh3) != (size_bytes, hashed.hexdigest()):
            raise RecordDamaged(str(self.folder), f"its part {part} is not what was written")

    def job(self) -> bytes:
        """Returns the cloudpickled ``JobImage``. Unpickling it runs the code in it."""
        return (self.folder / RecordPart.JOB).read_bytes()

    def log(self) -> bytes:
        """Returns the causal log from ``head.log_offset_bytes`` on, with the entries of a step that did not end."""
        return (self.folder / RecordPart.LOG).read_bytes()

    def state(self) -> list[tuple[str, list[bytes]]]:
        """Returns the chain of objects that restores the state, oldest first: names and pieces, as
        ``snapshot.restore_from`` and ``restore_moved`` take them. Empty at the job's start.
        """
        found: list[tuple[str, list[bytes]]] = []
        for piece in self._pieces(RecordPart.STATE, _state_decoder):
            if not found or found[-1][0] != piece.name:
                found.append((piece.name, []))
            found[-1][1].append(piece.data)
        return found

    def inputs(self) -> Iterator[Input]:
        """Yields the input, each channel in its order; of a source its ``READ``s in their order."""
        return self._pieces(RecordPart.INPUT, _input_decoder)

    def expected(self) -> Iterator[EmittedOutput]:
        """Yields what is known of the output of the live task, each channel in its order."""
        return self._pieces(RecordPart.EXPECTED, _emitted_decoder)

    def sources(self) -> Iterator[SourceFile]:
        """Yields the source files of the job's own code."""
        return self._pieces(RecordPart.SOURCES, _source_decoder)

    def _pieces(self, part: RecordPart, decoder: msgspec.msgpack.Decoder[Piece]) -> Iterator[Piece]:
        for content in frames_in(self.folder / part):
            try:
                yield decoder.decode(content)
            except DECODE_ERRORS as error:
                raise RecordDamaged(str(self.folder), f"its part {part} is malformed: {error}") from None

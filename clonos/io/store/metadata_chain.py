"""Metadata chain of the store: numbered entries, each created only if absent, for terms and completed checkpoints.

A coordinator that finds the next number taken has been superseded. Old entries are removed in ascending order, so a
coordinator that creates an entry whose predecessor is missing was away for too long, and has been superseded too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import msgspec

from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.core.wire.log_delta import Count
from clonos.io.store.envelope import ObjectCorrupt, seal, unseal
from clonos.io.store.object_files import ObjectFiles, ObjectMissing

CHAIN_FORMAT = 1
FOLDER = "chain"
NUMBER_DIGITS = 20
ENTRY_NAME = re.compile(rf"[0-9]{{{NUMBER_DIGITS}}}")

RETAINED_MAX = 100
"""Checkpoints whose entries are retained; the objects of all but the last two have been removed."""


Term = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
"""Term of a coordinator, which is the upper part of its view numbers; the lower part has 32 bits."""


class EntryKind(StrEnum):
    """Kind of a chain entry."""

    TERM = "term"
    CHECKPOINT = "checkpoint"


class ChainEntry(msgspec.Struct, frozen=True):
    """Entry of the chain: a completed checkpoint with its metadata, or the beginning of a term.

    ``checkpoint``: in an entry of a term, 0 or the checkpoint that the job resumes from; later checkpoints that are
    completed before this entry are void. ``metadata``: that of a checkpoint; in an entry of a term the shape of the
    plan with which the job begins its input, empty if it goes on from a checkpoint. ``claimant``: random bytes of the
    writing process, so that two processes never write equal entries of a term. ``written_ns``: the time of a
    checkpoint, 0 in an entry of a term.
    """

    format: int
    kind: EntryKind
    job_id: str
    term: Term
    claimant: bytes
    checkpoint: Count
    metadata: bytes
    written_ns: Count


class AppendOutcome(StrEnum):
    """Outcome of an append."""

    CREATED = "created"  # or it existed already with equal bytes
    TAKEN = "taken"  # another coordinator has this number


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ChainEntry)


class StoreChain:
    """Chain as one coordinator knows it. ``last_number``: the last entry that it has read or created."""

    def __init__(self, files: ObjectFiles) -> None:
        self._files = files
        self.last_number = 0
        self._numbers: list[int] = []
        self._first_number = 1  # first entry that may still exist

    def refresh(self) -> None:
        """Lists the entries; the next append follows the last of them."""
        names = [name.rpartition("/")[2] for name in self._files.list(FOLDER)]
        self._numbers = [int(name) for name in names if ENTRY_NAME.fullmatch(name)]
        self.last_number = self._numbers[-1] if self._numbers else 0
        self._first_number = self._numbers[0] if self._numbers else 1

    def backwards(self) -> Iterator[ChainEntry]:
        """Returns the entries that ``refresh`` found, the last one first; each is read when it is reached."""
        for number in reversed(self._numbers):
            try:
                yield self._read_one(number)
            except ObjectMissing:  # an old entry, removed meanwhile
                continue

    def _read_one(self, number: int) -> ChainEntry:
        name = _name(number)
        content = unseal(self._files.read(name), name)
        try:
            entry = _decoder.decode(content)
        except DECODE_ERRORS as error:
            raise ObjectCorrupt(name, str(error)) from None
        check_format(f"the entry {name}", entry.format, CHAIN_FORMAT)
        return entry

    def append(self, entry: ChainEntry) -> AppendOutcome:
        """Creates the next entry. A call that failed may be repeated with the same entry."""
        number = self.last_number + 1
        name = _name(number)
        data = seal(_encoder.encode(entry), name)
        if not self._files.create_if_absent(name, data) and self._files.read(name) != data:
            return AppendOutcome.TAKEN
        if number > 1 and not self._files.exists(_name(number - 1)):
            self._files.delete(name)
            return AppendOutcome.TAKEN
        self.last_number = number
        return AppendOutcome.CREATED

    def remove_old(self, keep: int = RETAINED_MAX) -> None:
        """Removes all but the last ``keep`` entries, the oldest first."""
        while self._first_number <= self.last_number - keep:
            self._files.delete(_name(self._first_number))
            self._first_number += 1


def _name(number: int) -> str:
    return f"{FOLDER}/{number:0{NUMBER_DIGITS}}"

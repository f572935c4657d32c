"""The store's one chain of numbered entries, each created only if absent: claims of terms and completed checkpoints.

Whoever finds the next number taken is coordinator no longer. Old entries are removed in ascending order, so whoever
creates a number whose predecessor is gone was away for too long and is coordinator no longer either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import msgspec

from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.log_delta import Count
from clonos.io.store.envelope import ObjectCorrupt, seal, unseal
from clonos.io.store.object_files import ObjectFiles, ObjectMissing

CHAIN_FORMAT = 1
FOLDER = "chain"
NUMBER_DIGITS = 20
ENTRY_NAME = re.compile(rf"[0-9]{{{NUMBER_DIGITS}}}")

KEPT_MAX = 100
"""Checkpoints whose entries stay; the objects of all but the last two are gone by then."""


Term = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
"""Of a coordinator; views are numbered by it and a number of 32 bits."""


class EntryKind(StrEnum):
    """What an entry says."""

    TERM = "term"
    CHECKPOINT = "checkpoint"


class ChainEntry(msgspec.Struct, frozen=True):
    """``checkpoint`` and ``metadata`` are those of a completed checkpoint. In a claim ``metadata`` is empty, and
    ``checkpoint`` is 0, or the one that the job goes back to: those completed after it before the claim count no more.

    ``claimant``: bits of the process that made it, else two that claim one term at once would write equal bytes.
    """

    format: int
    kind: EntryKind
    job_id: str
    term: Term
    claimant: bytes
    checkpoint: Count = 0
    metadata: bytes = b""


class AppendOutcome(StrEnum):
    """What became of an entry."""

    CREATED = "created"  # or it was there already with equal bytes
    TAKEN = "taken"  # the number is another's


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ChainEntry)


class StoreChain:
    """The chain as one coordinator knows it: ``last_number`` is the last entry that it has read or created."""

    def __init__(self, files: ObjectFiles) -> None:
        self._files = files
        self.last_number = 0
        self._numbers: list[int] = []
        self._first_number = 1  # of those that may still be there

    def look(self) -> None:
        """Finds out what is there; the chain goes on from its last entry."""
        names = [name.rpartition("/")[2] for name in self._files.list(FOLDER)]
        self._numbers = [int(name) for name in names if ENTRY_NAME.fullmatch(name)]
        self.last_number = self._numbers[-1] if self._numbers else 0
        self._first_number = self._numbers[0] if self._numbers else 1

    def backwards(self) -> Iterator[ChainEntry]:
        """The entries that ``look`` has found, the last one first; each is read when it is its turn."""
        for number in reversed(self._numbers):
            try:
                yield self._read_one(number)
            except ObjectMissing:  # it was old and has been removed meanwhile
                continue

    def _read_one(self, number: int) -> ChainEntry:
        name = _name(number)
        content = unseal(self._files.read(name), name)
        try:
            entry = _decoder.decode(content)
        except DECODE_ERRORS as error:
            raise ObjectCorrupt(name, str(error)) from None
        if entry.format > CHAIN_FORMAT:
            raise ObjectCorrupt(name, f"format {entry.format} is newer than {CHAIN_FORMAT}: update clonos")
        return entry

    def append(self, entry: ChainEntry) -> AppendOutcome:
        """Creates the next number. May be repeated with the same entry after a failure."""
        number = self.last_number + 1
        name, data = _name(number), seal(_encoder.encode(entry))
        if not self._files.create_if_absent(name, data) and self._files.read(name) != data:
            return AppendOutcome.TAKEN
        if number > 1 and not self._files.exists(_name(number - 1)):
            self._files.delete(name)
            return AppendOutcome.TAKEN
        self.last_number = number
        return AppendOutcome.CREATED

    def remove_old(self, keep: int = KEPT_MAX) -> None:
        """Removes all but the last entries, the oldest first."""
        while self._first_number <= self.last_number - keep:
            self._files.delete(_name(self._first_number))
            self._first_number += 1


def _name(number: int) -> str:
    return f"{FOLDER}/{number:0{NUMBER_DIGITS}}"

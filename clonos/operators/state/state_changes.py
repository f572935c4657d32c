"""Changes of keyed state as bytes: pieces of about a megabyte, each of which can be applied by itself, in their order.

The same entries give the same bytes in every process. Older formats are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.values import Column, column_of, decode_rows, rows_of
from clonos.core.values.keys import EncodedKey, key_of, state_keys
from clonos.core.wire.decoding import DECODE_ERRORS

CHANGES_FORMAT: Final = 2
"""1 had the key group of each key, which follows from the key."""

SECTION_BYTES: Final = 1 << 20
"""What a section of a table aims at: it stays in the processor's cache on its way, and a thread that encodes holds the
interpreter for half a millisecond."""

SECTION_ENTRIES_FIRST: Final = 256
SECTION_ENTRIES_MAX: Final = 1 << 13

Entries = dict[Any, Any]


class StateMalformed(EnvironmentFault):
    """Bytes of a snapshot are no changes of state."""

    reason: str

    def __str__(self) -> str:
        return (
            f"the changes of state in a snapshot cannot be read: {self.reason}."
            " Restore the object from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


class StateUnsupported(JobError):
    """A step keeps something in its state that no snapshot can carry."""

    table: str
    problem: str

    def __str__(self) -> str:
        return f"the state {self.table} cannot be stored: {self.problem}"


class Section(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Some entries of one table, as bytes."""

    name: str
    deleted: Column
    keys: Column
    values: Column

    @property
    def size_bytes(self) -> int:
        """Of what lies in it."""
        return self.deleted.size_bytes + self.keys.size_bytes + self.values.size_bytes


class _SectionOfFormat1(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    deleted: bytes
    keys: bytes
    groups: bytes
    values: bytes

    def read(self) -> Section:
        """As of now."""
        deleted, keys, values = (column_of(decode_rows(data)) for data in (self.deleted, self.keys, self.values))
        return Section(self.name, deleted, keys, values)


class _Piece(msgspec.Struct, frozen=True, array_like=True):
    format: int
    is_full: bool
    dropped: tuple[str, ...]
    sections: msgspec.Raw


class Changes(NamedTuple):
    """A piece. ``is_full``: everything else is forgotten first. ``dropped``: tables forgotten before the rest."""

    is_full: bool
    dropped: tuple[str, ...]
    sections: tuple[Section, ...]


_NOTHING: Final = column_of([])
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Piece)
_decoder_of_sections: Final = msgspec.msgpack.Decoder(tuple[Section, ...])
_decoder_of_sections_1: Final = msgspec.msgpack.Decoder(tuple[_SectionOfFormat1, ...])


def encode_piece(sections: tuple[Section, ...], is_full: bool = False, dropped: tuple[str, ...] = ()) -> bytes:
    """The bytes of a piece."""
    return _encoder.encode((CHANGES_FORMAT, is_full, dropped, sections))


def decode_piece(data: bytes | memoryview) -> Changes:
    """What ``encode_piece`` was given. StateMalformed."""
    try:
        piece = _decoder.decode(data)
        if piece.format > CHANGES_FORMAT:
            raise StateMalformed(f"format {piece.format} is newer than {CHANGES_FORMAT}: update clonos")
        if piece.format == 1:
            sections = tuple([section.read() for section in _decoder_of_sections_1.decode(piece.sections)])
        else:
            sections = _decoder_of_sections.decode(piece.sections)
        return Changes(piece.is_full, piece.dropped, sections)
    except DECODE_ERRORS as error:
        raise StateMalformed(str(error)) from error


def encode_deleted(name: str, deleted: Iterable[Any]) -> Section:
    """The keys that a table has lost."""
    return Section(name, column_of(_users_keys(list(deleted))), _NOTHING, _NOTHING)


def encode_sections(name: str, entries: Entries, wanted: Iterable[Any] | None = None) -> Iterator[Section]:
    """The entries of these keys (None: all), in their order; looked at when it is their turn. StateUnsupported."""
    rest = iter(entries if wanted is None else wanted)
    rest_values = iter(entries.values()) if wanted is None else None
    count = SECTION_ENTRIES_FIRST
    while keys := list(islice(rest, count)):
        values = [entries[key] for key in keys] if rest_values is None else list(islice(rest_values, count))
        try:
            section = Section(name, _NOTHING, column_of(_users_keys(keys)), column_of(values))
        except JobError as problem:
            raise StateUnsupported(name, str(problem)) from problem
        yield section
        count = max(1, min(SECTION_ENTRIES_MAX, count * SECTION_BYTES // section.size_bytes))


def _users_keys(keys: list[Any]) -> list[Any]:
    return list(map(key_of, keys)) if EncodedKey in {*map(type, keys)} else keys


class Read(NamedTuple):
    """The entries of a section, under their state keys."""

    deleted: list[Any]
    keys: list[Any]
    values: list[Any]


def read_section(section: Section) -> Read:
    """What ``encode_sections`` and ``encode_deleted`` were given. StateMalformed, ValueMalformed."""
    try:
        deleted, keys = state_keys(rows_of(section.deleted)), state_keys(rows_of(section.keys))
    except JobError as error:  # no job has put it there
        raise StateMalformed(f"{section.name}: {error}") from error
    values = rows_of(section.values)
    if len(keys) != len(values):
        raise StateMalformed(f"{section.name}: {len(keys)} keys with {len(values)} values")
    return Read(deleted, keys, values)

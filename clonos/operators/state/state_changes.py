"""Encoded changes of keyed state: pieces of about 1 MiB, each of which can be applied by itself, in order.

Equal entries give equal bytes in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from clonos.core.model.errors import JobError
from clonos.core.values import Column, column_of, rows_of
from clonos.core.values.key_encoding import EncodedKey
from clonos.core.values.keys import key_of, state_keys
from clonos.core.values.numpy_scalars import keeping_types
from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.operators.state.state_errors import StateMalformed, StateUnsupported

if TYPE_CHECKING:
    from clonos.operators.state.column_changes import ColumnSection

CHANGES_FORMAT: Final = 3

SECTION_BYTES: Final = 1 << 20
"""Target size of a section: it fits the processor's cache, and encoding it holds the interpreter lock for 0.5 ms."""

SECTION_ENTRIES_FIRST: Final = 256
SECTION_ENTRIES_MAX: Final = 1 << 13

Entries = dict[Any, Any]


class Section(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Some entries of one table, encoded."""

    name: str
    deleted: Column
    keys: Column
    values: Column

    @property
    def size_bytes(self) -> int:
        """Returns the number of encoded bytes."""
        return self.deleted.size_bytes + self.keys.size_bytes + self.values.size_bytes


class _Piece(msgspec.Struct, frozen=True, array_like=True):
    format: int
    is_full: bool
    dropped: tuple[str, ...]
    sections: msgspec.Raw
    columns: tuple[msgspec.Raw, ...]


class Changes(NamedTuple):
    """Decoded piece. ``is_full``: it replaces all state. ``dropped``: tables that are deleted before it is applied."""

    is_full: bool
    dropped: tuple[str, ...]
    sections: tuple[Section, ...]
    columns: tuple[ColumnSection, ...] = ()


_NOTHING: Final = column_of([])
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Piece)
_decoder_of_sections: Final = msgspec.msgpack.Decoder(tuple[Section, ...])


def encode_piece(
    sections: tuple[Section, ...],
    is_full: bool = False,
    dropped: tuple[str, ...] = (),
    columns: tuple[ColumnSection, ...] = (),
) -> bytes:
    """Encodes a piece."""
    return _encoder.encode((CHANGES_FORMAT, is_full, dropped, sections, columns))


def decode_piece(data: bytes | memoryview) -> Changes:
    """Decodes a piece.

    Raises: StateMalformed: these bytes are not a piece. FormatUnknown: another version wrote them.
    """
    try:
        piece = _decoder.decode(data)
        check_format("a piece of state in a snapshot", piece.format, CHANGES_FORMAT)
        sections = _decoder_of_sections.decode(piece.sections)
        columns = _columns_of(piece.columns) if piece.columns else ()
        return Changes(piece.is_full, piece.dropped, sections, columns)
    except DECODE_ERRORS as error:
        raise StateMalformed(str(error)) from error


def _columns_of(sections: tuple[msgspec.Raw, ...]) -> tuple[ColumnSection, ...]:
    from clonos.operators.state.column_changes import ColumnSection

    return tuple([msgspec.msgpack.decode(section, type=ColumnSection) for section in sections])


def encode_deleted(name: str, deleted: Iterable[Any]) -> Section:
    """Encodes deleted keys of a table."""
    return Section(name, column_of(user_keys(list(deleted))), _NOTHING, _NOTHING)


def encode_sections(name: str, entries: Entries, wanted: Iterable[Any] | None = None) -> Iterator[Section]:
    """Encodes the entries of the wanted keys (None: all) in order; reads each entry when its section is encoded.

    Raises: StateUnsupported: a value cannot be stored.
    """
    rest = iter(entries if wanted is None else wanted)
    rest_values = iter(entries.values()) if wanted is None else None
    count = SECTION_ENTRIES_FIRST
    while keys := list(islice(rest, count)):
        values = [entries[key] for key in keys] if rest_values is None else list(islice(rest_values, count))
        try:
            with keeping_types():
                section = Section(name, _NOTHING, column_of(user_keys(keys)), column_of(values))
        except JobError as problem:
            raise StateUnsupported(name, str(problem)) from problem
        yield section
        count = max(1, min(SECTION_ENTRIES_MAX, count * SECTION_BYTES // section.size_bytes))


def user_keys(keys: list[Any]) -> list[Any]:
    """Returns the user's keys for state keys."""
    return list(map(key_of, keys)) if EncodedKey in {*map(type, keys)} else keys


class DecodedSection(NamedTuple):
    """Decoded entries of a section, under their state keys."""

    deleted: list[Any]
    keys: list[Any]
    values: list[Any]


def read_section(section: Section) -> DecodedSection:
    """Decodes a section.

    Raises: StateMalformed: it is damaged. ValueMalformed: a value cannot be decoded by this code.
    """
    try:
        deleted, keys = state_keys(rows_of(section.deleted)), state_keys(rows_of(section.keys))
    except JobError as error:  # a key that no job can have stored
        raise StateMalformed(f"{section.name}: {error}") from error
    values = rows_of(section.values)
    if len(keys) != len(values):
        raise StateMalformed(f"{section.name}: {len(keys)} keys with {len(values)} values")
    return DecodedSection(deleted, keys, values)

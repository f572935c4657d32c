"""Keyed state of a chain: tables in memory, their changes since the last snapshot, and the encoding of both.

A table belongs to one step and one of its descriptors; ``step/name`` identifies it for the life of the job.

- Entries are stored under ``keys.state_key``, so that 1 and True are two keys; snapshots contain the user's keys.
- A restored table has its entries in the original order, by which windows and timers fire. A key that was deleted and
  set again is the last one in both.
- Equal calls give equal bytes in every process.
- A mutable value that user code has read counts as changed, because a change in place cannot be detected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from clonos.operators.state.frozen_entries import FrozenPieces, Overlay
from clonos.operators.state.state_changes import (
    DecodedSection,
    Entries,
    Section,
    decode_piece,
    encode_deleted,
    encode_piece,
    encode_sections,
    read_section,
)
from clonos.operators.state.state_errors import StateOfOtherForm

if TYPE_CHECKING:
    from clonos.operators.state.column_changes import ColumnSection
    from clonos.operators.state.column_slots import SlotColumns
    from clonos.operators.state.column_spec import ColumnSizes
    from clonos.operators.state.column_state import ColumnState, Reader
    from clonos.operators.state.column_table import ColumnSpec, ColumnTable
    from clonos.operators.state.row_store import RowStore

INLINE_BYTES_MAX: Final = 4 << 20
"""Bytes that a barrier encodes itself, which takes a few ms; other threads encode the rest."""

ALL: Final = 1 << 60
"""Bound above any number of entries."""

MERGED_PER_STEP_MAX: Final = 1 << 11
"""Entries of an overlay that a step merges, which takes about 1 ms."""


class StateImage:
    """Passive image of the state, which a standby keeps current; a new incarnation takes over its tables."""

    __slots__ = ("tables", "columns", "stores")

    def __init__(self) -> None:
        self.tables: dict[str, Entries] = {}
        self.columns: dict[str, SlotColumns] = {}
        self.stores: dict[str, RowStore] = {}

    def apply(self, changes: bytes | memoryview) -> None:
        """Applies a piece of the changes of one snapshot.

        Raises: StateMalformed: these bytes are not such a piece. ValueMalformed: a value cannot be decoded by this
        code.
        """
        decoded = decode_piece(changes)
        read = [self._read(section) for section in decoded.sections]
        places: tuple[dict[str, Any], ...] = (self.tables, self.columns, self.stores)
        for place in places:
            if decoded.is_full:
                place.clear()
            for name in decoded.dropped:
                place.pop(name, None)
        for section, (deleted, keys, values) in zip(decoded.sections, read, strict=True):
            entries = self.tables.setdefault(section.name, {})
            for key in deleted:
                entries.pop(key, None)
            entries.update(zip(keys, values, strict=True))
        if decoded.columns:
            self._apply_columns(decoded.columns)

    def _read(self, section: Section) -> DecodedSection:
        """Decodes a section of a table."""
        return read_section(section)

    def _apply_columns(self, sections: tuple[ColumnSection, ...]) -> None:
        from clonos.operators.state.column_changes import apply_to_rows, apply_to_table

        for section in sections:
            name = section.name
            if section.part in ("rows", "remove rows"):
                self.stores[name] = apply_to_rows(self.stores.get(name), section)
            else:
                self.columns[name] = apply_to_table(self.columns.get(name), section)


class Table:
    """Entries of one descriptor.

    Code that changes ``entries`` directly adds the keys to ``changed``, and reads ``entries`` anew in each step: it may
    be an ``Overlay``, which supports access by key only, unless ``is_small``.
    """

    __slots__ = ("entries", "entry_bytes", "changed", "deleted", "deletes_empty", "is_small")

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.entry_bytes = 0.0
        """Mean size of the entries that the last snapshot has encoded at the barrier."""
        self.changed: dict[Any, None] = {}
        """Changed keys as an ordered set: new keys in the order in which they were added to ``entries``."""
        self.deleted: dict[Any, None] = {}
        self.deletes_empty = False
        """Whether an empty container is deleted at the next snapshot."""
        self.is_small = False
        """Whether the table is never frozen but encoded by the barrier."""

    @property
    def entry_count(self) -> int:
        """Number of entries; while a snapshot is read, without those that were added meanwhile."""
        entries = self.entries
        return len(entries.frozen if isinstance(entries, Overlay) else entries)

    @property
    def is_filled(self) -> bool:
        """Whether there is an entry."""
        entries = self.entries
        return len(entries) > 0 or (isinstance(entries, Overlay) and len(entries.frozen) > len(entries.deleted))

    def set(self, key: Any, value: Any) -> None:
        """Sets one entry."""
        self.entries[key] = value
        self.changed[key] = None

    def update(self, values: Entries) -> None:
        """Sets several entries; new ones are added in their order."""
        self.entries.update(values)
        self.changed.update(dict.fromkeys(values))

    def delete(self, key: Any) -> None:
        """Deletes one entry, if it exists."""
        if self.entries.pop(key, self) is not self:
            self.changed.pop(key, None)
            self.deleted[key] = None

    def delete_each(self, keys: list[Any]) -> None:
        """Deletes several entries, which exist."""
        entries, changed = self.entries, self.changed
        for key in keys:
            entries.pop(key)
            changed.pop(key, None)
        self.deleted.update(dict.fromkeys(keys))

    def contents(self) -> Entries:
        """Returns all entries, to be read only."""
        return self.entries.merged() if isinstance(self.entries, Overlay) else self.entries

    def delete_empty(self) -> None:
        """Deletes empty containers, before the changes are taken."""
        if self.deletes_empty:
            for key in [key for key in self.changed if not self.entries[key]]:
                self.delete(key)

    def clear_changes(self) -> None:
        """Forgets the changes, which a snapshot contains now."""
        self.changed = {}
        self.deleted = {}


class StateBackend:
    """Tables of one incarnation's chain."""

    __slots__ = (
        "_inline_bytes_max",
        "_restored",
        "_tables",
        "_dropped",
        "_reading",
        "_is_frozen",
        "_columns",
        "_column_sizes",
    )

    def __init__(
        self,
        image: StateImage | None,
        inline_bytes_max: int = INLINE_BYTES_MAX,
        column_sizes: ColumnSizes | None = None,
    ) -> None:
        """Takes over the tables of ``image``, which must not be used elsewhere afterwards."""
        self._column_sizes = column_sizes
        self._inline_bytes_max = inline_bytes_max
        self._restored = {} if image is None else image.tables
        self._tables: dict[str, Table] = {}
        self._dropped: dict[str, None] = {}
        self._reading: list[FrozenPieces] = []
        self._is_frozen = False
        """Whether some table has an overlay: its snapshot is being read, or it is being merged."""
        self._columns: ColumnState | None = None  # until a step keeps state in columns
        if image is not None and (image.columns or image.stores):
            self._columns = self._new_columns(image)

    def table(self, name: str, deletes_empty: bool = False, is_small: bool = False) -> Table:
        """Returns the table of this name with its restored entries, or a new one.

        Raises: StateOfOtherForm: the snapshot has columns of this name.
        """
        found = self._tables.get(name)
        if found is None:
            if self._columns is not None and name in self._columns:
                raise StateOfOtherForm(name, "columns", "a value for each key")
            found = self._tables[name] = Table(self._restored.pop(name, {}))
        found.deletes_empty = found.deletes_empty or deletes_empty
        found.is_small = found.is_small or is_small
        return found

    def column_table(self, name: str, spec: ColumnSpec) -> ColumnTable:
        """Returns the table in columns of this name with its restored keys, or a new one.

        Raises: StateOfOtherForm: it was stored with other types, or not in columns.
        """
        return self._open_columns(name).table(name, spec)

    def row_store(self, name: str) -> RowStore:
        """Returns the row store of this name with its restored rows, or a new one.

        Raises: StateOfOtherForm: the snapshot has a table of this name.
        """
        return self._open_columns(name).store(name)

    def opened(self) -> list[tuple[str, Table]]:
        """Returns the tables that steps have opened, by name, to be read only."""
        return sorted(self._tables.items())

    @property
    def columns(self) -> ColumnState | None:
        """Tables in columns and row stores, to be read only; None if no step has any."""
        return self._columns

    def restored(self, prefix: str) -> list[str]:
        """Returns the sorted names of restored tables with this prefix that no step has opened yet."""
        return sorted(name for name in self._restored if name.startswith(prefix))

    def restored_columns(self, prefix: str) -> list[str]:
        """Returns the sorted names of restored column tables and row stores with this prefix, not opened yet."""
        return [] if self._columns is None else self._columns.restored(prefix)

    def filled(self, names: Iterable[str]) -> tuple[str, ...]:
        """Returns the names of those tables that have an entry."""
        tables = self._tables
        return tuple([name for name in names if name in tables and tables[name].is_filled])

    def drop(self, name: str) -> None:
        """Deletes a whole table or row store."""
        if name in self._tables:
            del self._tables[name]
        else:
            assert self._columns is not None, f"no step has opened {name}"
            self._columns.drop(name)
        self._dropped[name] = None

    @property
    def column_bytes(self) -> int:
        """Memory of the state in columns; any thread may read this."""
        columns = self._columns
        return 0 if columns is None else columns.size_bytes

    @property
    def row_bytes(self) -> int:
        """Size of the state in rows as it would be encoded, from the entries that the last snapshots have encoded; any
        thread may read this."""
        return int(sum(table.entry_bytes * table.entry_count for table in list(self._tables.values())))

    def _open_columns(self, name: str) -> ColumnState:
        if self._tables.get(name) or self._restored.get(name):
            raise StateOfOtherForm(name, "a value for each key", "columns")
        if self._columns is None:
            self._columns = self._new_columns(StateImage())
        return self._columns

    def _new_columns(self, image: StateImage) -> ColumnState:
        from clonos.operators.state.column_spec import SIZES
        from clonos.operators.state.column_state import ColumnState

        return ColumnState(image.columns, image.stores, self._column_sizes or SIZES)

    # --- snapshots

    def changes(self, full: bool) -> bytes:
        """Encodes the changes since the last call, or all entries if ``full``.

        Raises: StateUnsupported: a value cannot be stored.
        """
        sections: list[Section] = []
        for name, keys in self._begin(full, sections):
            sections += encode_sections(name, self._tables[name].entries, keys)
        columns = [section for reader in self._column_readers(full) for section in reader]
        return self._end(full, sections, columns)

    def take(self, full: bool) -> tuple[bytes, FrozenPieces | None]:
        """Encodes changes up to the inline limit and freezes the rest, which the returned pieces encode later.

        Raises: StateUnsupported: a value cannot be stored.
        """
        self.merge_overlay(ALL)
        sections: list[Section] = []
        later: dict[str, tuple[Entries, list[Any] | None]] = {}
        # Entries are frozen for one snapshot at a time, and the changes since are few; columns for any number.
        left_bytes = ALL if self._reading else self._inline_bytes_max
        for name, keys in self._begin(full, sections):
            table = self._tables[name]
            wanted, size_bytes = keys.__length_hint__(), 0
            for section in encode_sections(name, table.entries, keys):
                sections.append(section)
                size_bytes += section.size_bytes
                if size_bytes > left_bytes and not table.is_small:
                    break
            left_bytes -= size_bytes
            if encoded := wanted - keys.__length_hint__():
                table.entry_bytes = size_bytes / encoded
            if rest := list(keys):
                later[name] = (self._frozen(table), rest)
        columns: list[ColumnSection] = []
        columns_later: list[Reader] = []
        left_bytes = min(left_bytes, self._inline_bytes_max)
        for reader in self._column_readers(full):
            left_bytes -= reader.size_bytes
            if left_bytes < 0:
                columns_later.append(reader)
            else:
                columns += reader
        self._hold(columns_later)
        changes = self._end(full, sections, columns)
        return changes, self._read(FrozenPieces(later, (), columns_later)) if later or columns_later else None

    def whole(self) -> FrozenPieces | None:
        """Returns all state as of the ``take`` just made; None while earlier frozen entries are being read."""
        over = [table.entries for table in self._tables.values() if isinstance(table.entries, Overlay)]
        if not all(overlay.is_unchanged for overlay in over):
            return None
        sections: list[Section] = []
        later: dict[str, tuple[Entries, list[Any] | None]] = {}
        for name in list(self._restored):
            self.table(name)
        for name, table in sorted(self._tables.items()):
            if table.is_small:
                sections += encode_sections(name, table.entries)
            else:
                later[name] = (self._frozen(table), None)
        columns = [] if self._columns is None else self._columns.whole()
        self._hold(columns)
        return self._read(FrozenPieces(later, (encode_piece(tuple(sections), is_full=True),), columns))

    def merge_overlay(self, entries_max: int = MERGED_PER_STEP_MAX) -> None:
        """Merges up to ``entries_max`` entries per table between two steps, if all frozen entries are released."""
        if not self._is_frozen:
            return
        reading = [pieces for pieces in self._reading if not pieces.is_released]
        if len(reading) < len(self._reading) and self._columns is not None:
            self._columns.release()
        self._reading = reading
        if reading:
            return
        self._is_frozen = False
        for table in self._tables.values():
            if isinstance(overlay := table.entries, Overlay):
                if overlay.merge_overlay(entries_max):
                    table.entries = overlay.frozen
                else:
                    self._is_frozen = True

    def _begin(self, full: bool, sections: list[Section]) -> list[tuple[str, Any]]:
        """Returns the wanted keys of each table; appends the sections of deleted keys."""
        if full:  # restored tables that no step has opened are part of the state
            for name in list(self._restored):
                self.table(name)
        wanted: list[tuple[str, Any]] = []
        for name, table in sorted(self._tables.items()):
            table.delete_empty()
            if table.deleted and not full:
                sections.append(encode_deleted(name, table.deleted))
            wanted.append((name, iter(list(table.contents() if full else table.changed))))
        return wanted

    def _column_readers(self, full: bool) -> list[Reader]:
        return [] if self._columns is None else self._columns.take(full)

    def _hold(self, readers: list[Reader]) -> None:
        if readers:
            assert self._columns is not None, "a reader is of a table"
            self._columns.hold(readers)
            self._is_frozen = True

    def _end(self, full: bool, sections: list[Section], columns: list[ColumnSection]) -> bytes:
        dropped = () if full else tuple(self._dropped)
        for table in self._tables.values():
            table.clear_changes()
        self._dropped = {}
        return encode_piece(tuple(sections), full, dropped, tuple(columns))

    def _frozen(self, table: Table) -> Entries:
        """Freezes a table and returns its entries."""
        if not isinstance(table.entries, Overlay):
            table.entries = Overlay(table.entries)
            self._is_frozen = True
        return table.entries.frozen

    def _read(self, pieces: FrozenPieces) -> FrozenPieces:
        self._reading.append(pieces)
        return pieces

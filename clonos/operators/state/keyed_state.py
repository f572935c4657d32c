"""Keyed state of one vertex's chain: tables in memory, what has changed in them since the last snapshot, their bytes.

A table belongs to one step and one of its descriptors; ``step/name`` names it for the job's life. Rules:

- Entries are kept under ``keys.state_key``, so that 1 and True are two keys; bytes carry the user's key.
- A table restored from snapshots has its entries in the order of the original: windows and timers fire by it. A key
  that was deleted and set again stands at the end in both.
- The same calls give the same bytes in every process.
- A mutable value that was handed out counts as changed: nobody can see what was done to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from clonos.operators.state.frozen_entries import LaterPieces, Overlay
from clonos.operators.state.state_changes import (
    Entries,
    Section,
    decode_piece,
    encode_deleted,
    encode_piece,
    encode_sections,
    read_section,
)

INLINE_BYTES_MAX: Final = 4 << 20
"""What a barrier encodes itself, in a few ms; the rest is left to others."""

ALL: Final = 1 << 60
"""More entries than there can be."""

MELTED_A_STEP_MAX: Final = 1 << 11
"""Entries that a step merges into what was frozen, in about a ms."""


class StateImage:
    """The passive image that a standby keeps current (``core.chain.Mirror``); a new incarnation takes its tables."""

    __slots__ = ("tables",)

    def __init__(self) -> None:
        self.tables: dict[str, Entries] = {}

    def apply(self, changes: bytes | memoryview) -> None:
        """Brings in a piece of one snapshot's changes. StateMalformed; ValueMalformed: values of other code."""
        decoded = decode_piece(changes)
        read = [read_section(section) for section in decoded.sections]
        if decoded.is_full:
            self.tables.clear()
        for name in decoded.dropped:
            self.tables.pop(name, None)
        for section, (deleted, keys, values) in zip(decoded.sections, read, strict=True):
            entries = self.tables.setdefault(section.name, {})
            for key in deleted:
                entries.pop(key, None)
            entries.update(zip(keys, values, strict=True))


class Table:
    """Entries of one descriptor. Who changes ``entries`` directly says so in ``changed``, and asks for them anew in
    each step: they may be an ``Overlay``, which is asked key by key, unless the table ``is_small``."""

    __slots__ = ("entries", "changed", "deleted", "prunes_empty", "is_small")

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.changed: dict[Any, None] = {}
        """An ordered set: new keys in the order in which they came into ``entries``."""
        self.deleted: dict[Any, None] = {}
        self.prunes_empty = False
        """An empty container is the same as none."""
        self.is_small = False
        """It is never frozen."""

    def set(self, key: Any, value: Any) -> None:
        """Sets one entry."""
        self.entries[key] = value
        self.changed[key] = None

    def update(self, values: Entries) -> None:
        """Sets many entries, new ones in their order."""
        self.entries.update(values)
        self.changed.update(dict.fromkeys(values))

    def delete(self, key: Any) -> None:
        """Deletes one entry, if there is one."""
        if self.entries.pop(key, self) is not self:
            self.changed.pop(key, None)
            self.deleted[key] = None

    def contents(self) -> Entries:
        """All entries, for who drops the table."""
        return self.entries.merged() if isinstance(self.entries, Overlay) else self.entries

    def prune(self) -> None:
        """Before the changes are taken."""
        if self.prunes_empty:
            for key in [key for key in self.changed if not self.entries[key]]:
                self.delete(key)

    def forget_changes(self) -> None:
        """They are in a snapshot now."""
        self.changed = {}
        self.deleted = {}


class StateBackend:
    """The tables of one incarnation's chain."""

    __slots__ = ("_inline_bytes_max", "_restored", "_tables", "_dropped", "_reading", "_is_frozen")

    def __init__(self, image: StateImage | None, inline_bytes_max: int = INLINE_BYTES_MAX) -> None:
        """Takes over the image's tables; nobody else uses it from now on."""
        self._inline_bytes_max = inline_bytes_max
        self._restored = {} if image is None else image.tables
        self._tables: dict[str, Table] = {}
        self._dropped: dict[str, None] = {}
        self._reading: list[LaterPieces] = []
        self._is_frozen = False
        """Whether some tables are not plain: their pieces are read, or they melt."""

    def table(self, name: str, prunes_empty: bool = False, is_small: bool = False) -> Table:
        """The table of this name, with what was restored; a new one if there is none."""
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = Table(self._restored.pop(name, {}))
        found.prunes_empty = found.prunes_empty or prunes_empty
        found.is_small = found.is_small or is_small
        return found

    def restored(self, prefix: str) -> list[str]:
        """Names of the restored tables that begin so and nobody has opened yet, sorted."""
        return sorted(name for name in self._restored if name.startswith(prefix))

    def drop(self, name: str) -> None:
        """Forgets a whole table."""
        del self._tables[name]
        self._dropped[name] = None

    # --- snapshots

    def changes(self, full: bool) -> bytes:
        """What has changed since the last call, or all of it, at once. StateUnsupported: a value cannot be kept."""
        sections: list[Section] = []
        for name, keys in self._begin(full, sections):
            sections += encode_sections(name, self._tables[name].entries, keys)
        return self._end(full, sections)

    def take(self, full: bool) -> tuple[bytes, LaterPieces | None]:
        """The same; what is beyond the limit is frozen, and becomes bytes when somebody iterates the pieces."""
        self.melt(ALL)
        if self._reading:  # one at a time; what has changed since is small
            return self.changes(full), None
        sections: list[Section] = []
        later: dict[str, tuple[Entries, list[Any] | None]] = {}
        left_bytes = self._inline_bytes_max
        for name, keys in self._begin(full, sections):
            table = self._tables[name]
            for section in encode_sections(name, table.entries, keys):
                sections.append(section)
                left_bytes -= section.size_bytes
                if left_bytes < 0 and not table.is_small:
                    break
            if rest := list(keys):
                later[name] = (self._frozen(table), rest)
        return self._end(full, sections), self._read(LaterPieces(later)) if later else None

    def whole(self) -> LaterPieces | None:
        """All of the state as it is now, just behind ``take``, for later. None: what is frozen since before is read
        still."""
        over = [table.entries for table in self._tables.values() if isinstance(table.entries, Overlay)]
        if not all(overlay.is_untouched for overlay in over):
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
        return self._read(LaterPieces(later, (encode_piece(tuple(sections), is_full=True),)))

    def melt(self, entries_max: int = MELTED_A_STEP_MAX) -> None:
        """Between two steps: what nobody reads any more takes in what has changed, until its tables are plain again."""
        if not self._is_frozen or not all(pieces.is_released for pieces in self._reading):
            return
        self._reading = []
        self._is_frozen = False
        for table in self._tables.values():
            if isinstance(overlay := table.entries, Overlay):
                if overlay.melt(entries_max):
                    table.entries = overlay.below
                else:
                    self._is_frozen = True

    def _begin(self, full: bool, sections: list[Section]) -> list[tuple[str, Iterator[Any]]]:
        """By table the keys that are wanted; what was deleted stands in front of them."""
        if full:  # what was restored and no step has asked for yet is part of it
            for name in list(self._restored):
                self.table(name)
        wanted: list[tuple[str, Iterator[Any]]] = []
        for name, table in sorted(self._tables.items()):
            table.prune()
            if table.deleted and not full:
                sections.append(encode_deleted(name, table.deleted))
            wanted.append((name, iter(list(table.contents() if full else table.changed))))
        return wanted

    def _end(self, full: bool, sections: list[Section]) -> bytes:
        dropped = () if full else tuple(self._dropped)
        for table in self._tables.values():
            table.forget_changes()
        self._dropped = {}
        return encode_piece(tuple(sections), full, dropped)

    def _frozen(self, table: Table) -> Entries:
        """The entries of a table, which stand still from now on."""
        if not isinstance(table.entries, Overlay):
            table.entries = Overlay(table.entries)
            self._is_frozen = True
        return table.entries.below

    def _read(self, pieces: LaterPieces) -> LaterPieces:
        self._reading.append(pieces)
        return pieces

"""Keyed state of one vertex's chain: tables in memory, what has changed in them since the last snapshot, their bytes.

A table belongs to one step and one of its descriptors; ``step/name`` names it for the job's life. Rules:

- Entries are kept under ``keys.state_key``, so that 1 and True are two keys; bytes carry the user's key and its group.
- A table restored from snapshots has its entries in the order of the original: windows and timers fire by it. A key
  that was deleted and set again stands at the end in both.
- The same calls give the same bytes in every process.
- A mutable value that was handed out counts as changed: nobody can see what was done to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from clonos.core.errors import EnvironmentFault, JobError
from clonos.core.keys import encode_key, key_group, key_of, state_keys
from clonos.core.values import decode_rows, encode_rows

CHANGES_FORMAT: Final = 1

SECTION_ENTRIES_MAX: Final = 1 << 14
"""Of one section of a table in the bytes."""


class StateMalformed(EnvironmentFault):
    """Bytes of a snapshot are no changes of state."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the changes of state in a snapshot cannot be read: {self.reason}."
            " Restore the object from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


class StateUnsupported(JobError):
    """A step keeps something in its state that no snapshot can carry."""

    def __init__(self, table: str, problem: str) -> None:
        super().__init__(table, problem)
        self.table = table
        self.problem = problem

    def __str__(self) -> str:
        return f"the state {self.table} cannot be stored: {self.problem}"


class _TableChanges(msgspec.Struct, frozen=True, array_like=True):
    """A section of one table. ``groups``: per key that is set its key group: who has it when the job is rescaled."""

    name: str
    deleted: bytes
    keys: bytes
    groups: bytes
    values: bytes


class _Changes(msgspec.Struct, frozen=True, array_like=True):
    """``is_full``: everything else is forgotten first. ``dropped``: tables that are forgotten before the rest."""

    format: int
    is_full: bool
    dropped: tuple[str, ...]
    tables: tuple[_TableChanges, ...]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Changes)

Entries = dict[Any, Any]
GroupKey = Callable[[Any], Any]


class StateImage:
    """The passive image that a standby keeps current (``core.chain.Mirror``); a new incarnation takes its tables."""

    __slots__ = ("tables",)

    def __init__(self) -> None:
        self.tables: dict[str, Entries] = {}

    def apply(self, changes: bytes) -> None:
        """Brings in one snapshot's changes. StateMalformed; ValueMalformed: values of other code."""
        decoded = _decode(changes)
        if decoded.is_full:
            self.tables.clear()
        for name in decoded.dropped:
            self.tables.pop(name, None)
        for table in decoded.tables:
            entries = self.tables.setdefault(table.name, {})
            for key in _state_keys_of(table.deleted):
                entries.pop(key, None)
            entries.update(zip(_state_keys_of(table.keys), decode_rows(table.values), strict=True))


class Table:
    """Entries of one descriptor. Who changes ``entries`` directly says so in ``changed``."""

    __slots__ = ("entries", "changed", "deleted", "group_key", "prunes_empty")

    def __init__(self, entries: Entries, group_key: GroupKey = key_of, prunes_empty: bool = False) -> None:
        """``group_key``: the user's key, which decides the group, from an entry's. ``prunes_empty``: an empty container
        is the same as none."""
        self.entries = entries
        self.changed: dict[Any, None] = {}
        """An ordered set: new keys in the order in which they came into ``entries``."""
        self.deleted: dict[Any, None] = {}
        self.group_key = group_key
        self.prunes_empty = prunes_empty

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

    def changes(self, name: str, full: bool, max_parallelism: int) -> list[_TableChanges]:
        """What has changed since the last call, or all. StateUnsupported."""
        if self.prunes_empty:
            for key in [key for key in self.changed if not self.entries[key]]:
                self.delete(key)
        wanted = list(self.entries if full else self.changed)
        deleted = [] if full else list(self.deleted)
        try:
            if deleted:
                return [
                    self._section(name, deleted, [], max_parallelism),
                    *self._sections(name, wanted, max_parallelism),
                ]
            return self._sections(name, wanted, max_parallelism)
        except JobError as problem:
            raise StateUnsupported(name, str(problem)) from problem

    def _sections(self, name: str, wanted: list[Any], max_parallelism: int) -> list[_TableChanges]:
        starts = range(0, len(wanted), SECTION_ENTRIES_MAX)
        return [self._section(name, [], wanted[i : i + SECTION_ENTRIES_MAX], max_parallelism) for i in starts]

    def _section(self, name: str, deleted: list[Any], wanted: list[Any], max_parallelism: int) -> _TableChanges:
        entries = self.entries
        return _TableChanges(
            name,
            encode_rows([key_of(key) for key in deleted]),
            encode_rows([key_of(key) for key in wanted]),
            encode_rows([key_group(encode_key(self.group_key(key)), max_parallelism) for key in wanted]),
            encode_rows([entries[key] for key in wanted]),
        )

    def forget_changes(self) -> None:
        """They are in a snapshot now."""
        self.changed = {}
        self.deleted = {}


class StateBackend:
    """The tables of one incarnation's chain."""

    __slots__ = ("_max_parallelism", "_restored", "_tables", "_dropped")

    def __init__(self, image: StateImage | None, max_parallelism: int) -> None:
        """Takes over the image's tables; nobody else uses it from now on."""
        self._max_parallelism = max_parallelism
        self._restored = {} if image is None else image.tables
        self._tables: dict[str, Table] = {}
        self._dropped: dict[str, None] = {}

    def table(self, name: str, group_key: GroupKey = key_of, prunes_empty: bool = False) -> Table:
        """The table of this name, with what was restored; a new one if there is none."""
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = Table(self._restored.pop(name, {}), group_key, prunes_empty)
        return found

    def restored(self, prefix: str) -> list[str]:
        """Names of the restored tables that begin so and nobody has opened yet, sorted."""
        return sorted(name for name in self._restored if name.startswith(prefix))

    def drop(self, name: str) -> None:
        """Forgets a whole table."""
        del self._tables[name]
        self._dropped[name] = None

    def changes(self, full: bool) -> bytes:
        """What has changed since the last call, or all of it. StateUnsupported: a value cannot be kept."""
        if full:  # what was restored and no step has asked for yet is part of it
            for name in list(self._restored):
                self.table(name)
        tables: list[_TableChanges] = []
        for name, table in sorted(self._tables.items()):
            tables += table.changes(name, full, self._max_parallelism)
        changes = _Changes(CHANGES_FORMAT, full, () if full else tuple(self._dropped), tuple(tables))
        for table in self._tables.values():
            table.forget_changes()
        self._dropped = {}
        return _encoder.encode(changes)


def _decode(changes: bytes) -> _Changes:
    try:
        decoded = _decoder.decode(changes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StateMalformed(str(error)) from error
    if decoded.format > CHANGES_FORMAT:
        raise StateMalformed(f"format {decoded.format} is newer than {CHANGES_FORMAT}: update clonos")
    return decoded


def _state_keys_of(encoded: bytes) -> list[Any]:
    return state_keys(decode_rows(encoded))

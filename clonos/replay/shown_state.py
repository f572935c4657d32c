"""State of a step as a replay shows it: that of a key, the first entries, or what a batch has changed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from clonos.core.model.errors import JobError
from clonos.core.values.keys import key_of, state_keys
from clonos.operators.state.keyed_state import StateBackend
from clonos.replay.output_comparison import shown

ENTRIES_SHOWN: Final = 5

StateEntries = dict[str, dict[Any, Any]]
"""Entries by the name of the state, with keys as they are stored. Rows without keys have their place, from 1."""


def state_entries(state: StateBackend, step: str) -> StateEntries:
    """Returns the state of a step, as rows and in columns."""
    found = StateEntries()
    prefix = f"{step}/"
    for name, table in state.opened():
        if name.startswith(prefix):
            found[name.removeprefix(prefix)] = dict(table.contents())
    if state.columns is not None:
        from clonos.operators.state.column_entries import entries_of, rows_in

        for name, columns in sorted(state.columns.tables.items()):
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = {_stored(key): value for key, value in entries_of(columns.store)}
        for name, store in sorted(state.columns.stores.items()):
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = dict(enumerate(rows_in(store), 1))
    return found


def _stored(key: Any) -> Any:
    """Returns a key as state is stored under it, or its text if it can be no key."""
    try:
        return state_keys([tuple(key) if isinstance(key, list) else key])[0]
    except JobError:
        return shown(key)


def state_text(entries: StateEntries, key: Any) -> str:
    """Describes the state of a key, or of a step without keys."""
    if key is None:
        return "; ".join(f"{name} = {_shown(each)}" for name, each in entries.items() if each) or "none"
    stored = _stored(key)
    found = [f"{name} = {shown(each[stored])}" for name, each in entries.items() if stored in each]
    return "; ".join(found) or "none"


def changes_text(before: StateEntries, after: StateEntries) -> str:
    """Describes which entries are new or have other values, and which are gone."""
    found: list[str] = []
    for name, entries in after.items():
        old = before.get(name, {})
        changed = {key: value for key, value in entries.items() if key not in old or old[key] != value}
        gone = [key for key in old if key not in entries]
        if changed:
            found.append(f"{name}: {len(changed):,} of {len(entries):,} changed: {_shown(changed)}")
        if gone:
            found.append(f"{name}: {len(gone):,} gone: {shown([*map(key_of, gone[:ENTRIES_SHOWN])])}")
    return "; ".join(found) or "unchanged"


def _shown(entries: Mapping[Any, Any]) -> str:
    more = len(entries) - ENTRIES_SHOWN
    first = {key_of(key): value for key, value in islice(entries.items(), ENTRIES_SHOWN)}
    return shown(first) + (f" and {more:,} more" if more > 0 else "")

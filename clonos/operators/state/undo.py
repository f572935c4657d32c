"""Undoing of what a record has changed, for steps whose records go to an error output when they raise.

An entry is kept when the record touches it first: as a copy where user code gets a value that it may change in place.
Changes of timers are made when the record has been processed. So a record that changes nothing costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.core.values.copying import copied
from clonos.operators.state.frozen_entries import ABSENT
from clonos.operators.state.keyed_state import Table


class Undo:
    """Journal of the changes that the current record of a step makes."""

    __slots__ = ("_before", "_timer_changes")

    def __init__(self) -> None:
        self._before: dict[tuple[Table, Any], Any] = {}
        self._timer_changes: list[tuple[Callable[[int, Any], None], int, Any]] = []

    def keep(self, table: Table, key: Any, copies: bool) -> None:
        """Keeps an entry before the record changes it. ``copies``: the record may change its value in place."""
        place = (table, key)
        if place not in self._before:
            value = table.entries.get(key, ABSENT)
            self._before[place] = copied(value) if copies and value is not ABSENT else value

    def change_timer(self, change: Callable[[int, Any], None], instant_ns: int, key: Any) -> None:
        """Sets or deletes a timer when the record has been processed."""
        self._timer_changes.append((change, instant_ns, key))

    def commit(self) -> None:
        """Ends a record that was processed."""
        if self._before:
            self._before = {}
        if self._timer_changes:
            changes, self._timer_changes = self._timer_changes, []
            for change, instant_ns, key in changes:
                change(instant_ns, key)

    def roll_back(self) -> None:
        """Ends a record that raised: all entries are as they were before it."""
        before, self._before, self._timer_changes = self._before, {}, []
        for (table, key), value in before.items():
            if value is ABSENT:
                table.delete(key)
            else:
                table.set(key, value)

"""Steps with a state per key that answer each record: stateful_map, reduce, running count.

State None is no state. Keys of one batch are looked up under ``state_keys``, which is the same list where all keys
stand for themselves; the user's functions always see the user's keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from clonos.core.keys import state_keys
from clonos.operators.operator import Operator, Scope
from clonos.operators.state import Table

STATE_NAME: Final = "state"


class Keyed(Operator):
    """Base of steps with one table."""

    _table: Table

    def __init__(self, step: str) -> None:
        self._step = step

    def open(self, scope: Scope) -> None:
        self._table = scope.state.table(f"{self._step}/{STATE_NAME}")


class StatefulMap(Keyed):
    """(key, state, value) -> (state, result); the first state of a key is None, and None forgets it."""

    def __init__(self, step: str, function: Callable[[Any, Any, Any], tuple[Any, Any]]) -> None:
        super().__init__(step)
        self._function = function

    def rows(self, rows: list[Any]) -> None:
        results: list[Any] = []
        stored = state_keys([key for key, _ in rows])
        wrapped = list(zip(stored, rows, strict=True))
        self.guard.run(lambda records: self._consume(records, results), wrapped, pairs=rows)
        if results:
            self.out.rows(results)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        function, table, append = self._function, self._table, results.append
        entries, changed, get = table.entries, table.changed, table.entries.get
        for key, (users_key, value) in records:
            state, result = function(users_key, get(key), value)
            if state is None:
                table.delete(key)
            else:
                entries[key] = state
                changed[key] = None
            append(result)


class Reduce(Keyed):
    """(key, everything so far), after each record."""

    def __init__(self, step: str, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(step)
        self._function = function

    def rows(self, rows: list[Any]) -> None:
        results: list[Any] = []
        stored = state_keys([key for key, _ in rows])
        wrapped = list(zip(stored, rows, strict=True))
        self.guard.run(lambda records: self._consume(records, results), wrapped, pairs=rows)
        if results:
            self.out.rows(results)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        function, append = self._function, results.append
        entries, changed = self._table.entries, self._table.changed
        for key, (users_key, value) in records:
            if key in entries:
                value = function(entries[key], value)
            entries[key] = value
            changed[key] = None
            append((users_key, value))


class RunningCount(Keyed):
    """(key, number of its records so far), after each record."""

    def rows(self, rows: list[Any]) -> None:
        self.keys([key for key, _ in rows])

    def keys(self, keys: list[Any]) -> None:
        entries, changed = self._table.entries, self._table.changed
        get = entries.get
        results: list[Any] = []
        append = results.append
        stored = state_keys(keys)
        for key in stored:
            entries[key] = count = get(key, 0) + 1
            changed[key] = None
            append((key, count))
        if stored is not keys:  # results bear the user's keys
            results = [(key, count) for key, (_, count) in zip(keys, results, strict=True)]
        self.out.rows(results)

    def keyed_columns(self, batch: Any, column: str) -> None:
        self.keys(batch.column(column).to_pylist())

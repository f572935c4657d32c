"""Steps with state per key that emit one result per record: stateful_map, reduce, running count.

State None means no state. The keys of a batch are looked up by ``state_keys``, which returns the same list if no key
needs encoding; user functions get the user's keys. What a step emits is a copy of mutable state, because the function
may change the state in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final, Generic, TypeVar

from clonos.core.values.column_keys import python_keys
from clonos.core.values.copying import IMMUTABLE, copied, immutability_check
from clonos.core.values.keys import state_keys
from clonos.kernels import choice
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.operator import Operator, Scope, Times, without
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import StateSpec, keyed
from clonos.operators.steps.function_results import not_a_pair

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

STATE: Final = keyed("state")

COUNTERS_MAX: Final = 1 << 14
"""Counters that are kept before they are written to the table."""


class Keyed(Operator):
    """Base of steps with one table."""

    _table: Table

    def __init__(self, step: str) -> None:
        self._step = step

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (STATE,)

    def open(self, scope: Scope) -> None:
        self._table = scope.state.table(STATE)


class KeyedFunction(Keyed, ABC, Generic[FunctionT]):
    """Base of steps that call a user function for each record and emit the results of a batch together."""

    runs_user_code = True

    def __init__(self, step: str, function: FunctionT) -> None:
        super().__init__(step)
        self._function = function

    def rows(self, rows: list[Any], times: Times = None) -> None:
        results: list[Any] = []
        stored = state_keys([key for key, _ in rows])
        wrapped = list(zip(stored, rows, strict=True))
        failed = self.guard.run(lambda records: self._consume(records, results), wrapped, pairs=rows)
        if results:
            self.out.rows(results, without(times, failed) if times and failed else times)

    def _getter(self) -> Callable[[Any], Any]:
        """Returns the function that gives user code the state of a key.

        With an error output that is a copy: the state stays as it was if the function changes it in place and raises.
        """
        get = self._table.entries.get
        return (lambda key: copied(get(key))) if self.guard.routes else get

    @abstractmethod
    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        """Appends the results of ``records``, which are (stored key, (user key, value))."""


class StatefulMap(KeyedFunction[Callable[[Any, Any, Any], tuple[Any, Any]]]):
    """Function (key, state, value) -> (state, result). The state of a new key is None; returning None deletes it."""

    state = ()
    called_with = (("key", "state", "value"),)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        fold_rows = None if choice.native is None else choice.native.fold_rows
        table = self._table
        if fold_rows is None or type(table.entries) is not dict or self.guard.routes:
            super().rows(rows, times)
            return
        results: list[Any] = []
        is_done = True

        def consume(records: Iterator[Any]) -> None:
            nonlocal is_done
            places = table.entries, table.changed, results
            is_done = fold_rows(records, rows, self._function, *places, table.delete, pair_of, beside)

        self.guard.run(consume, rows, pairs=rows)
        if is_done:
            self.out.rows(results, times)
        else:
            super().rows(rows, times)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        function, table, append = self._function, self._table, results.append
        entries, changed, get = table.entries, table.changed, self._getter()
        for key, (user_key, value) in records:
            state, result = pair_of(function(user_key, get(key), value))
            if state is None:
                table.delete(key)
            else:
                entries[key] = state
                changed[key] = None
            append(beside(state, result))


def pair_of(found: Any, method: str = "stateful_map") -> tuple[Any, Any]:
    """Returns what a function has returned as a pair. Raises: TypeError: it is no tuple and no list of two, as a dict,
    a set or a text of two is not."""
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise not_a_pair(method, found)
    state, result = found
    return state, result


def beside(state: Any, result: Any) -> Any:
    """Returns a result that may be emitted beside a state, of which it may be a part."""
    try:
        immutability_check()(state)
    except TypeError:
        return copied(result)
    return result


class KeyedReduce(KeyedFunction[Callable[[Any, Any], Any]]):
    """Reduction (value so far, value) -> value so far. Emits (key, value so far) after each record."""

    state = ()
    key_field = ""
    called_with = (("so_far", "value"),)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        function, append = self._function, results.append
        entries, changed, get = self._table.entries, self._table.changed, self._getter()
        for key, (user_key, value) in records:
            if key in entries:
                value = function(get(key), value)
            entries[key] = value
            changed[key] = None
            append((user_key, value if type(value) in IMMUTABLE else copied(value)))


class Counters(dict[Any, "count[int]"]):
    """Counter of each key that was seen since the table was last updated."""

    def __init__(self, table: Table, counters_max: int) -> None:
        super().__init__()
        self._table, self._counters_max = table, counters_max

    def __missing__(self, key: Any) -> count[int]:
        if len(self) >= self._counters_max:
            self.write_back()
        counter = self[key] = count(self._table.entries.get(key, 0) + 1)
        return counter

    def write_back(self) -> None:
        """Writes the counts to the table, in order of arrival."""
        self._table.update({key: next(counter) - 1 for key, counter in self.items()})
        self.clear()


class RunningCount(Keyed):
    """Count that emits (key, count so far) after each record.

    Until the next barrier each key has a counter. Thus a batch is counted in C, and the table is updated once per key.
    """

    state = ()
    key_field = ""
    ignores_order = True
    gives_one_at_most = True
    may_be_in_place = True
    reads = ()

    def __init__(self, step: str, *, counters_max: int = COUNTERS_MAX) -> None:
        super().__init__(step)
        self._counters_max = counters_max

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._counters = Counters(self._table, self._counters_max)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.keys([key for key, _ in rows], times)

    def keys(self, keys: list[Any], times: Times = None) -> None:
        counted = None if choice.native is None else choice.native.count_keys(keys, self._counters)
        if counted is None:
            counters = map(self._counters.__getitem__, state_keys(keys))
            counted = list(zip(keys, map(next, counters), strict=True))
        self.out.rows(counted, times)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self.keys(python_keys(batch, key), self.times_of(batch))

    def write_back(self) -> None:
        self._counters.write_back()

    def prepare(self, checkpoint: int) -> None:
        self.write_back()

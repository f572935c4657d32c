"""stateful_map_async: concurrent calls of keys that have state, one at a time for each key.

Open calls are those of ``AsyncMap``. Of the records of a key the first one has its call, and the others wait for it:
the state that a call gets has what the calls before it have returned. A call is requested where the one before it is
complete, so a replay requests the same calls with the same states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from clonos.core.log.call_outcomes import decode_outcome
from clonos.core.ports.recorder import CallLife, HoldingRecorder
from clonos.core.values import encode_value
from clonos.core.values.keys import state_key
from clonos.operators.facts import Facts, KnownInputs
from clonos.operators.operator import Scope, Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.steps.async_map import AsyncMap
from clonos.operators.steps.call_attempts import CallPolicy
from clonos.operators.steps.keyed import STATE, beside, pair_of
from clonos.operators.user_errors import RAISED


class AsyncStatefulMap(AsyncMap):
    """Function (key, state, value) -> (state, result). The state of a new key is None; returning None deletes it."""

    called_with = (("key", "state", "value"),)

    _recorder: HoldingRecorder
    _table: Table

    @classmethod
    def facts(cls, given: KnownInputs, *functions: Any, **arguments: Any) -> Facts:
        """See ``AsyncMap``. The records of a key keep their order."""
        return replace(super().facts(given, *functions, **arguments), breaks_order=False)

    def __init__(
        self,
        step: str,
        function: Callable[..., Any],
        capacity: int,
        policy: CallPolicy = CallPolicy(),  # noqa: B008  it is immutable
        logs_calls: bool = False,
    ) -> None:
        """See ``AsyncMap``."""
        super().__init__(step, function, capacity, False, policy, logs_calls=logs_calls)
        self._waiting: dict[Any, deque[int]] = {}  # by the stored key of an open call: records that wait for it
        self._holding = 0

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, STATE)

    def open(self, scope: Scope) -> None:
        self._table = scope.state.table(STATE)
        super().open(scope)
        self._hold()

    def rows(self, rows: list[Any], times: Times = None) -> None:
        super().rows(rows, times)
        self._hold()

    def _admit(self, number: int, record: Any, request: bytes) -> None:
        stored = state_key(record[0])
        if (waiting := self._waiting.get(stored)) is not None:
            waiting.append(number)
            return
        self._waiting[stored] = deque()
        self._ask(number, record, stored, request)

    def _ask(self, number: int, record: Any, stored: Any, request: bytes) -> None:
        key, value = record
        self._submit(number, (key, self._table.entries.get(stored), value), request)

    def complete(self, number: int, outcome: bytes) -> None:
        stored = state_key(self._open.entries[number][0])
        super().complete(number, outcome)
        waiting = self._waiting[stored]
        if waiting:
            following = waiting.popleft()
            record = self._open.entries[following]
            self._ask(following, record, stored, encode_value(record))
        else:
            del self._waiting[stored]
        self._hold()

    def _hold(self) -> None:
        """Tells the task how many records wait without a call."""
        held = len(self._open.entries) - len(self._waiting)
        self._recorder.hold(held - self._holding)
        self._holding = held

    def _perform(self, given: tuple[Any, ...], key: str, inside: CallLife | None = None) -> object:
        return pair_of(self._caller.call(given, key, inside))

    def _emit(self, number: int, outcome: bytes) -> None:
        record, timestamp_ns = self._end(number)
        try:
            state, result = cast(tuple[Any, Any], decode_outcome(outcome))
        except RAISED as error:
            self.guard.caught(error, record)
            return
        stored = state_key(record[0])
        if state is None:
            self._table.delete(stored)
        else:
            self._table.set(stored, state)
        self.out.rows([beside(state, result)], None if timestamp_ns is None else [timestamp_ns])

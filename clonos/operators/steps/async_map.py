"""map_async: concurrent calls that wait for I/O, while the task processes further input.

The state holds the calls without a result: a restored task makes them again, unless their outcome is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, Final, cast

from clonos.core.log.call_outcomes import decode_outcome
from clonos.core.model.errors import JobError
from clonos.core.model.watermark import Watermark, decode_watermark, encode_watermark
from clonos.core.ports.recorder import OWN_KEY, CallingRecorder, CallLife, EventAwaited, HoldingRecorder
from clonos.core.values import encode_value
from clonos.core.values.numpy_scalars import keeping_types
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import Operator, Scope, Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import Encoding, StateScope, StateSpec, small
from clonos.operators.steps.call_attempts import Caller, CallPolicy
from clonos.operators.steps.function_results import checked_items
from clonos.operators.user_errors import RAISED

OPEN: Final = small("open calls", StateScope.DRAINED)
"""Table of open calls: number of the call -> record."""

DONE: Final = small("calls done", StateScope.DRAINED, encoding=Encoding.OUTCOME)
"""Table of calls that completed before earlier ones: number of the call -> outcome."""

NEXT: Final = small("next call", StateScope.EMPTY)
"""Table with one entry, the number of the next call."""


TIMES: Final = small("times of open calls", StateScope.DRAINED)
"""Table of the timestamps of records with open calls: number of the call -> nanoseconds since the Unix epoch."""

PARTS: Final = small("parts of open calls", StateScope.DRAINED, encoding=Encoding.RESUMED, encoded_place=())
"""Table of the calls inside open calls: (number of the call, name of the part) -> its content."""

HELD: Final = small("held watermarks", StateScope.DRAINED, encoding=Encoding.INSTANTS)
"""Table of watermarks that wait for calls: number of the first call after them -> their encodings, in order."""


CALL_STATES: Final = (OPEN, DONE, NEXT, TIMES, PARTS, HELD)
"""States of calls, beside that of the step."""


class ResultShape(StrEnum):
    """Meaning of the return value of a call."""

    MAP = "map"  # the result
    FILTER = "filter"  # whether the record is a result
    FLAT_MAP = "flat_map"  # an iterable of results


class EventWithoutKey(JobError):
    """A function awaits an event in a step without keys."""

    step: str
    name: str

    def __str__(self) -> str:
        return (
            f"the function of {self.step} awaits the event {self.name!r}, and an event is for a key. Use"
            " key_by(...).stateful_map_async(function, log_calls=True)."
        )


class AsyncMap(Operator):
    """Results of a call in a thread per record. A watermark waits for the results of all records before it."""

    state = ()
    called_with: ClassVar[tuple[tuple[str, ...], ...]] = (("record",),)
    runs_user_code = True
    is_per_record = True
    has_calls: ClassVar[bool] = True
    holds_watermarks: ClassVar[bool] = True

    _recorder: CallingRecorder
    _open: Table
    _done: Table
    _next: Table
    _held: Table
    _times: Table
    _parts: Table | None = None

    @classmethod
    def facts(cls, given: KnownInputs, *functions: Any, **arguments: Any) -> Facts:
        """Returns those for the arguments of the operator. ``functions``: those of the user."""
        make = partial(cls, given.step, **arguments)
        return replace(
            facts_of(make, given, *functions),
            breaks_order="" if arguments.get("is_ordered", True) else "ordered=False",
            logs_calls=arguments.get("logs_calls", False),
            gives_one_at_most=arguments.get("shape") is not ResultShape.FLAT_MAP,
        )

    def __init__(
        self,
        step: str,
        function: Callable[..., Any],
        capacity: int,
        is_ordered: bool,
        policy: CallPolicy = CallPolicy(),  # noqa: B008  it is immutable
        shape: ResultShape = ResultShape.MAP,
        logs_calls: bool = False,
    ) -> None:
        """Creates the operator. ``logs_calls``: each call that the function makes has an entry of its own."""
        self._step, self._shape = step, shape
        self._capacity, self._is_ordered = capacity, is_ordered
        self._caller = Caller(step, function, policy)
        self._logs_calls = logs_calls
        self._part_names: dict[int, list[bytes]] = {}  # of the open calls
        self._number, self._stride = 0, 1
        self._holding = 0  # open records without a call of their own, as the task knows it

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return OPEN, DONE, NEXT, TIMES, HELD, *((PARTS,) if self._logs_calls else ())

    def number_calls(self, first: int, step: int) -> None:
        self._number, self._stride = first, step

    def open(self, scope: Scope) -> None:
        self._recorder = cast(CallingRecorder, scope.context.recorder)
        self._open = scope.state.table(OPEN)
        self._done = scope.state.table(DONE)
        self._next = scope.state.table(NEXT)
        self._held = scope.state.table(HELD)
        self._times = scope.state.table(TIMES)
        if self._logs_calls:
            self._parts = scope.state.table(PARTS)
            for number, name in self._parts.entries:
                self._part_names.setdefault(number, []).append(name)
        self._number = self._next.entries.get(0, self._number)
        self._caller.share_rate(scope.context.parallelism)
        self._limit_calls()
        self._submit_open()

    def _limit_calls(self) -> None:
        self._recorder.limit_calls(self._capacity)

    def _submit_open(self) -> None:
        """Requests the calls again that were open when the state was taken."""
        for number, record in self._open.entries.items():
            if number not in self._done.entries:
                self._admit(number, record, encode_value(record))

    def rows(self, rows: list[Any], times: Times = None) -> None:
        for record, timestamp_ns in zip(rows, times or repeat(None)):  # noqa: B905  the second one may be endless
            self._come(record, timestamp_ns)
        self._next.set(0, self._number)

    def _come(self, record: Any, timestamp_ns: int | None) -> None:
        request = self._begin(record, timestamp_ns)
        if request is not None:
            self._admit(self._number, record, request)
            self._number += self._stride

    def _admit(self, number: int, record: Any, request: bytes) -> None:
        """Requests the call of a record that has come, or lets it wait."""
        self._submit(number, (record,), request)

    def _begin(self, record: Any, timestamp_ns: int | None) -> bytes | None:
        """Stores a record until the call with the next number is complete. Returns its bytes, None if it has none."""
        request = self._encoded(record)
        if request is None:
            return None
        self._open.set(self._number, record)
        if timestamp_ns is not None:
            self._times.set(self._number, timestamp_ns)
        return request

    def _encoded(self, record: Any) -> bytes | None:
        """Returns the bytes of a record, None if it has none and is an error."""
        try:
            with keeping_types():
                return encode_value(record)
        except JobError as problem:
            self._fail(problem, record)
            return None

    def _fail(self, error: Exception, record: Any) -> None:
        """Makes a record an error."""
        self.guard.caught(error, record)

    def _end(self, number: int) -> tuple[Any, int | None]:
        """Removes the record of a call; returns it with its timestamp."""
        record, timestamp_ns = self._open.entries[number], self._times.entries.get(number)
        self._open.delete(number)
        if timestamp_ns is not None:
            self._times.delete(number)
        if self._parts is not None:
            for name in self._part_names.pop(number, ()):
                self._parts.delete((number, name))
        return record, timestamp_ns

    def on_watermark(self, watermark: Watermark) -> None:
        if self._open.entries:
            held = self._held.entries.get(self._number, ())
            self._held.set(self._number, (*held, encode_watermark(watermark)))
        else:
            self.pass_watermark(watermark)

    def _pass_held(self) -> None:
        """Passes on the watermarks in front of which no call is open any more."""
        while self._held.entries:
            number = next(iter(self._held.entries))
            if self._open.entries and next(iter(self._open.entries)) < number:
                return
            held = self._held.entries[number]
            self._held.delete(number)
            for each in held:
                self.pass_watermark(decode_watermark(each))

    def _hold(self, asked: int) -> None:
        """Tells the task how many open records wait without a call of their own. ``asked``: how many have one."""
        held = len(self._open.entries) - asked
        cast(HoldingRecorder, self._recorder).hold(held - self._holding)
        self._holding = held

    @property
    def open_calls(self) -> int:
        return len(self._open.entries)

    @property
    def logs_calls(self) -> bool:
        """Whether each call that its function makes has an entry of its own in the log."""
        return self._logs_calls

    @property
    def next_call(self) -> int:
        """Number of the next call."""
        return self._number

    @property
    def open_numbers(self) -> list[int]:
        """Numbers of the open records, also of those that wait for the call of another."""
        return list(self._open.entries)

    def record_of(self, number: int) -> Any:
        """Returns an open record."""
        return self._open.entries[number]

    def complete(self, number: int, outcome: bytes) -> None:
        self._take(number, outcome)
        self._pass_held()

    def _take(self, number: int, outcome: bytes) -> None:
        if not self._is_ordered:
            for early, found in list(self._done.entries.items()):  # the job kept the order until it was resumed
                self._done.delete(early)
                self._emit(early, found)
            self._emit(number, outcome)
            return
        self._done.set(number, outcome)
        self._emit_done()

    def _emit_done(self) -> None:
        """Emits the results of the records in front of which no call is open."""
        for number in list(self._open.entries):
            outcome = self._done.entries.get(number)
            if outcome is None:
                return
            self._done.delete(number)
            self._emit(number, outcome)

    def take_part(self, number: int, name: bytes, data: bytes) -> None:
        assert self._parts is not None, "a step that logs the calls of its function has parts"
        if (number, name) not in self._parts.entries:
            self._parts.set((number, name), data)
            self._part_names.setdefault(number, []).append(name)

    def _submit(self, number: int, given: tuple[Any, ...], request: bytes) -> None:
        """Requests the call with these arguments. ``request``: what is asked, encoded."""
        parts = None
        if self._parts is not None:
            parts = {name: self._parts.entries[number, name] for name in self._part_names.get(number, ())}
        key = self._recorder.submit(number, self._step, request, partial(self._perform, given), parts)
        if parts is not None and OWN_KEY not in parts:
            self.take_part(number, OWN_KEY, key.encode())

    def _perform(self, given: tuple[Any, ...], key: str, inside: CallLife | None = None) -> object:
        """Makes a call, in a thread of its own."""
        try:
            found = self._caller.call(given, key, inside)
        except EventAwaited as awaited:
            raise EventWithoutKey(self._step, awaited.name) from None
        if self._shape is ResultShape.FILTER:
            return bool(found)
        return found if self._shape is ResultShape.MAP else list(checked_items(found))

    def answer_calls(self, answers: Mapping[str, Callable[..., Any]]) -> None:
        if self._logs_calls:
            self._caller.answers = answers

    def skip_pauses(self) -> None:
        """Makes the attempts of calls without pauses between them, in a replay that runs the function."""
        self._caller.skip_pauses()

    def close(self) -> None:
        self._caller.close()

    def _emit(self, number: int, outcome: bytes) -> None:
        record, timestamp_ns = self._end(number)
        try:
            result = decode_outcome(outcome)
        except RAISED as error:
            self.guard.caught(error, record)
            return
        results: Any = [result]
        if self._shape is ResultShape.FLAT_MAP:
            results = result
        elif self._shape is ResultShape.FILTER:
            results = [record] if result else []
        if results:
            self.out.rows(results, None if timestamp_ns is None else [timestamp_ns] * len(results))

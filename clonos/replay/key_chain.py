"""Chain of a replay that follows one key: what each step gets of it, asks for it and makes of its state.

A step with a function of the user is looked at record by record. Other steps, such as ``count``, process the records of
a batch together, and are looked at before and after each batch. Batches stay as they are, so that the log fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from clonos.core.log.call_outcomes import decode_outcome, is_value
from clonos.core.ports.operator_chain import ChainContext, Mirror
from clonos.core.ports.recorder import OWN_KEY
from clonos.core.values.keys import key_of, state_key
from clonos.io.system.wall_clock import time_text
from clonos.operators.chain import VertexImage
from clonos.operators.operator import Operator, Times
from clonos.operators.steps.async_stateful_map import AsyncStatefulMap
from clonos.operators.steps.awaited_events import FOLLOWING, Awaits, Cancel, Event, SuspendedCall
from clonos.replay.epoch import Epoch
from clonos.replay.key_steps import KeyedTables, KeyRecord, KeyState, KeyStep, StepEvent, has_keys_in_columns, is_keyed
from clonos.replay.logged_functions import FunctionRun, NotingRecorder, RequestedCall, SuspendedRun, run_function
from clonos.replay.record_hooks import RecordAt
from clonos.replay.replay_chain import ReplayChain
from clonos.replay.seen_calls import CallKind, SeenCall, text_of
from clonos.replay.what_if import WhatIf, take_outcome

ROWS: Final = ("rows", "keys", "first", "second")
"""Methods by which a step takes rows."""

LATER: Final = ("fire", "fire_events", "on_watermark")
"""Methods by which a step does what no record of it brings about."""

KEYS_NAMED: Final = 5


class KeyChain(ReplayChain):
    """Chain that follows a key. ``steps``: what it has gone through. ``other_keys``: some others of the task."""

    def __init__(self, image: VertexImage, epoch: Epoch, wanted: str, what_if: WhatIf | None = None) -> None:
        """``wanted``: the key as text, as ``str`` or ``repr`` shows it. ``what_if``: the code is a changed one."""
        super().__init__(image, epoch, self._see)
        self.steps: list[KeyStep] = []
        self.other_keys: dict[str, None] = {}
        self._what_if = what_if
        self._wanted, self._is_redacted = wanted, bool(epoch.head.redacted)
        self.in_columns: list[str] = []  # steps whose state is in columns, which are not followed
        self._tables: dict[str, KeyedTables] = {}
        self._together: set[str] = set()  # steps that are looked at before and after each batch
        self._processing: dict[str, KeyStep] = {}  # by step: the record that is being processed
        self._is_opened = False
        self._stored: Any = None  # the key, once it is known
        self._requested: dict[int, RequestedCall] = {}
        self._numbers: dict[int, int | None] = {}  # by call: number of the record
        self._suspended: dict[Any, SuspendedRun] = {}  # by key
        for node, operator in zip(image.nodes, self._operators, strict=True):
            if is_keyed(operator):
                self._follow(node.step, operator)
            elif has_keys_in_columns(operator):
                self.in_columns.append(node.step)

    # ------------------------------------------------------------------ hooks

    def _follow(self, step: str, operator: Operator) -> None:
        """Looks at what a step gets."""
        self._tables[step] = KeyedTables(step, operator)
        for name in (each for each in ROWS if hasattr(operator, each)):
            process = getattr(operator, name)
            if isinstance(operator, AsyncStatefulMap):
                followed: Callable[..., None] = partial(self._take_for_calls, step, operator, process)
            elif operator.runs_user_code:
                followed = partial(self._take_one_by_one, step, process)
            else:
                self._together.add(step)
                followed = partial(self._take_together, step, name == "keys", process)
            setattr(operator, name, followed)
        for name in LATER:
            setattr(operator, name, partial(self._take_later, step, operator, getattr(operator, name)))

    def _see(self, at: RecordAt) -> None:
        """Hook in front of each record of a step with user code."""
        if at.step not in self._tables or at.step in self._together:
            return
        self._close(at.step)
        if at.last is None and self._is_wanted(at.key):
            self._begin(at.step, StepEvent.RECORD, at.key, [KeyRecord(at.number, at.record)])

    def _take_one_by_one(self, step: str, process: Callable[..., None], *args: Any, **named: Any) -> None:
        process(*args, **named)
        self._close(step)

    def _take_together(
        self, step: str, has_keys_only: bool, process: Callable[..., None], rows: list[Any], *times: Times
    ) -> None:
        pairs = [(key, key) for key in rows] if has_keys_only else rows
        found = [(index, pair) for index, pair in enumerate(pairs) if self._is_wanted(pair[0])]
        if found:
            records = [KeyRecord(self.number_at(step, index), record) for index, (_, record) in found]
            self._begin(step, StepEvent.RECORD, found[0][1][0], records)
        process(rows, *times)
        self._close(step)

    def _take_for_calls(
        self, step: str, operator: AsyncStatefulMap, process: Callable[..., None], rows: list[Any], times: Times = None
    ) -> None:
        """Notes which record has which call, and events."""
        for index, (key, record) in enumerate(rows):
            at, first, is_event = self.number_at(step, index), operator.next_call, type(record) in (Event, Cancel)
            is_wanted = self._is_wanted(key)
            if is_wanted and is_event:
                self._begin(step, StepEvent.EVENT, key, [KeyRecord(at, record)])
            process([rows[index]], None if times is None else times[index : index + 1])
            if is_wanted:
                suspended = self._suspended.get(state_key(key))
                if suspended is not None and not is_event:
                    suspended.numbers.append(at)
                self._note_calls(operator, first, [at] if suspended is None else suspended.numbers)
            self._close(step)

    def _note_calls(self, operator: AsyncStatefulMap, first: int, numbers: list[int | None]) -> None:
        """Notes the records of the calls of the key that a step has requested since the call ``first``."""
        open_now = [number for number in operator.open_numbers if number >= first]
        own = [number for number in open_now if state_key(operator.record_of(number)[0]) == self._stored]
        self._numbers.update(zip(own, numbers, strict=False))

    def _take_later(self, step: str, operator: Operator, process: Callable[..., None], *args: Any) -> None:
        """Looks at what timers and watermarks change."""
        if self._stored is None or step in self._processing:
            process(*args)
            return
        entry = KeyStep(step, StepEvent.TIMER, key_of(self._stored), [], self._key_state(step))
        first = operator.next_call if isinstance(operator, AsyncStatefulMap) else 0
        process(*args)
        if isinstance(operator, AsyncStatefulMap) and (suspended := self._suspended.get(self._stored)) is not None:
            self._note_calls(operator, first, suspended.numbers)
        entry.after = self._key_state(step)
        if entry.after != entry.before:
            self.steps.append(entry)

    @property
    def keyed_steps(self) -> list[str]:
        """Steps with state by key that are followed."""
        return list(self._tables)

    def number_at(self, step: str, index: int) -> int | None:
        """Returns the number of the record at an index of the batch of a step, None if it is not known."""
        is_aligned = any(node.is_aligned for node in self._image.nodes if node.step == step)
        return self.first + index + 1 if is_aligned else None

    def states(self) -> dict[str, KeyState]:
        """Returns the state of the key at the end, and what waits for a call of it, by the steps that have some."""
        if self._stored is None:
            return {}
        found = {
            step: self._key_state(step) | tables.queued(self.state, self._stored)
            for step, tables in self._tables.items()
        }
        return {step: state for step, state in found.items() if state}

    # ------------------------------------------------------------------ steps of the key

    def _is_wanted(self, key: Any) -> bool:
        if key is None:
            return False
        if self._wanted in (str(key), text := text_of(key)):
            self._stored = state_key(key)
            return True
        if len(self.other_keys) < KEYS_NAMED:
            self.other_keys[text] = None
        return False

    def _key_state(self, step: str) -> KeyState:
        return self._tables[step].of(self.state, self._stored)

    def _begin(self, step: str, event: StepEvent, key: Any, records: list[KeyRecord]) -> KeyStep:
        entry = KeyStep(step, event, key, records, self._key_state(step))
        self.steps.append(entry)
        self._processing[step] = entry
        return entry

    def _close(self, step: str) -> None:
        if (entry := self._processing.pop(step, None)) is not None:
            entry.after = self._key_state(step)

    def take_call(self, call: SeenCall) -> None:
        """Adds a call of user code to the record that is being processed."""
        if self._processing:
            next(reversed(self._processing.values())).calls.append(call)

    # ------------------------------------------------------------------ asynchronous calls

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        self._recorder: Any = context.recorder
        recorder: Any = NotingRecorder(context.recorder, self._request, self.take_part_of)
        super().open(replace(context, recorder=recorder), mirror, position)
        for operator in self._calling:
            if isinstance(operator, AsyncStatefulMap):
                operator.skip_pauses()
        self._is_opened = True
        for tables in self._tables.values():
            for stored in tables.keys(self.state):
                self._is_wanted(key_of(stored))

    def _request(self, call: RequestedCall) -> None:
        self._requested[call.number] = call

    def take_part(self, number: int, name: bytes, data: bytes) -> None:
        super().take_part(number, name, data)
        self.take_part_of(number, name, data)

    def take_part_of(self, number: int, name: bytes, data: bytes) -> None:
        """Notes a part of a call."""
        call = self._requested.get(number)
        if call is not None and call.parts is not None:
            call.parts.setdefault(name, data)

    def complete(self, number: int, outcome: bytes) -> None:
        call = self._requested.pop(number)
        operator = self._calling[number % len(self._calling)]
        if not isinstance(operator, AsyncStatefulMap) or not self._is_wanted(operator.record_of(number)[0]):
            super().complete(number, outcome)
            return
        entry = self._begin_call(call, operator)
        run = self._run(entry, call)
        if self._what_if is None or run is None:
            take_outcome(entry, outcome)
            if run is not None and not run.unanswered and not run.is_as_logged(outcome):
                entry.notes.append(f"the function does not repeat itself: now it {run.ending}")
        stored, first = self._stored, operator.next_call
        self._suspended.pop(stored, None)
        if _is_awaiting(outcome):
            self._suspended[stored] = SuspendedRun([entry.records[0].number], run)
        super().complete(number, outcome)
        if stored in self._suspended:
            self._note_calls(operator, first, self._suspended[stored].numbers)
            _note_due(entry, operator.awaiting(stored))
        self._close(call.service)
        if self._what_if is not None and run is not None:
            entry.after = self._what_if.take_run(entry, run, outcome)

    def _begin_call(self, call: RequestedCall, operator: AsyncStatefulMap) -> KeyStep:
        key, record = operator.record_of(call.number)
        number = self._numbers.pop(call.number, None)
        return self._begin(call.service, StepEvent.RECORD, key, [KeyRecord(number, record)])

    def _run(self, entry: KeyStep, call: RequestedCall) -> FunctionRun | None:
        """Runs the function of a call with the logged outcomes of its calls. Returns None if it cannot run."""
        if call.parts is None or self._is_redacted:
            entry.notes.append(LEFT_OUT if self._is_redacted else NOT_LOGGED)
            return None
        suspended, what_if = self._suspended.get(self._stored), self._what_if
        before = None if suspended is None else suspended.run
        instant_ns = self._recorder.instant_ns_last
        run = run_function(call, instant_ns) if what_if is None else what_if.run(entry, call, instant_ns, before)
        entry.calls_as_before = 0 if before is None else _equal_at_first(before.calls, run.calls)
        entry.calls = run.calls[entry.calls_as_before :]
        if entry.calls and run.awaits and entry.calls[-1].kind is CallKind.EVENT:
            del entry.calls[-1]
        if run.unanswered:
            entry.notes.append(
                f"the log has no outcome of its call of {run.unanswered}, so the function ends there"
                if what_if is None
                else what_if.refusal(run.unanswered)
            )
        return run

    def close(self) -> None:
        """Shows the calls that are open at the end of the log, and those that wait for events, and closes the chain."""
        if self._stored is not None and self._is_opened:
            for operator in self._calling:
                if isinstance(operator, AsyncStatefulMap):
                    self._show_open(operator)
        super().close()

    def _show_open(self, operator: AsyncStatefulMap) -> None:
        step = operator.guard.step
        self._show_suspended(operator)
        for number in operator.open_numbers:
            key, record = operator.record_of(number)
            if not self._is_wanted(key):
                continue
            call = self._requested.get(number)
            if call is not None:
                entry = self._begin_call(call, operator)
                self._run(entry, call)
                entry.is_open = True
            else:
                entry = self._begin(step, StepEvent.RECORD, key, [KeyRecord(self._numbers.get(number), record)])
                entry.notes.append("it waits for the call before it")
            self._close(step)

    def _show_suspended(self, operator: AsyncStatefulMap) -> None:
        """Shows the call of the key that has awaited an event since an earlier epoch, with its logged calls."""
        awaiting = operator.awaiting(self._stored)
        if awaiting is None or self._stored in self._suspended:
            return
        step = operator.guard.step
        entry = self._begin(step, StepEvent.RECORD, awaiting.record[0], [KeyRecord(None, awaiting.record[1])])
        parts = dict(awaiting.parts)
        if (own_key := parts.pop(OWN_KEY, None)) is None:
            entry.notes.append(LEFT_OUT)
        else:
            call = RequestedCall(operator.next_call, step, own_key.decode(), operator.resumed(self._stored), parts)
            run = self._run(entry, call)
            if self._what_if is None and run is not None and not run.unanswered and run.awaits != awaiting.name:
                entry.notes.append(f"the function does not repeat itself: now it {run.ending}")
        entry.awaits = awaiting.name
        entry.notes.append("it has awaited the event since before this epoch")
        _note_due(entry, awaiting)
        if waiting := self._tables[step].queued(self.state, self._stored).get(FOLLOWING.name):
            entry.notes.append(f"records of the key that wait for it: {', '.join(map(text_of, waiting))}")
        self._close(step)


NOT_LOGGED: Final = (
    "the calls of the function are not in the log, which has its outcome alone: log_calls=True logs each of them"
)


LEFT_OUT: Final = "the calls of the function are not shown: a redacted record does not have them"


def _note_due(entry: KeyStep, awaiting: SuspendedCall | None) -> None:
    """Notes when the time of an awaited event is up."""
    if awaiting is not None and awaiting.due_ns is not None:
        entry.notes.append(f"its time is up at {time_text(awaiting.due_ns)}")


def _is_awaiting(outcome: bytes) -> bool:
    return is_value(outcome) and isinstance(decode_outcome(outcome), Awaits)


def _equal_at_first(one: list[SeenCall], other: list[SeenCall]) -> int:
    """Returns how many calls are equal before the first that differs."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )

"""enrich_batch: one question to a service for many keys, and for each record the answer of its key.

A key that is not in the cache waits with its records until enough keys wait or their time has ended. Then one call
asks for all of them. Its number is that of its first record, and a table tells for each record which call it waits for,
so a restored task asks the same questions under the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from clonos.core.log.call_outcomes import decode_outcome, encode_outcome
from clonos.core.ports.recorder import CallLife
from clonos.core.values import encode_value, register
from clonos.core.values.keys import state_key
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.interval_timer import DUE, IntervalTimer
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.steps.call_attempts import CallPolicy
from clonos.operators.steps.data_frames import NoFrame, as_batch
from clonos.operators.steps.enrich import CacheRules, Enrich, NotFound
from clonos.operators.user_errors import RAISED


@register
class EncodedOutcomes(NamedTuple):
    """Outcome of a call for several keys: that of each key, encoded, because it may be an exception."""

    outcomes: tuple[bytes, ...]


class AnswersUnusable(TypeError):
    """A function of ``enrich_batch`` returned a value that gives no answers by key."""


class EnrichBatch(Enrich):
    """Results ``select(record, answer)``, in the order of the records. A call asks for up to ``keys_max`` keys.

    ``field``: the field of the records that has the key; None if a function gives it.
    """

    called_with = (("keys",),)
    has_timers: ClassVar[bool] = True

    def __init__(
        self,
        step: str,
        lookup: Callable[..., Any],
        key: Callable[[Any], Any],
        select: Callable[[Any, Any], Any],
        capacity: int,
        policy: CallPolicy,
        cache: CacheRules | None,
        not_found: NotFound,
        *,
        keys_max: int,
        interval_ns: int,
        field: str | None,
    ) -> None:
        super().__init__(step, lookup, key, select, capacity, policy, cache, not_found)
        self._keys_max, self._interval_ns, self._field = keys_max, interval_ns, field
        self._gathered: dict[Any, tuple[Any, list[int]]] = {}  # state key -> the key, and the records that wait for it
        self._waiting: dict[int, dict[Any, list[int]]] = {}  # open call -> state key -> records that wait for it

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, DUE)

    def open(self, scope: Scope) -> None:
        self._timer = IntervalTimer(scope.state.table(DUE), self._interval_ns, scope.context.recorder)
        super().open(scope)

    def _limit_calls(self) -> None:
        """Lets as many records wait as the calls ask for that run at once, and those of one more."""
        waiting_max = self._keys_max * (self._capacity + 1)
        self._recorder.limit_calls(waiting_max, waiting_max)

    # --- questions

    def _ask(self, number: int, argument: Any, stored: Any) -> None:
        if not self._gathered:
            self._timer.start()
        self._gathered.setdefault(stored, (argument, []))[1].append(number)
        self._ask_gathered()

    def _follow(self, number: int, call: int, stored: Any) -> None:
        self._followers.set(number, call)
        self._waiting.setdefault(call, {}).setdefault(stored, []).append(number)

    def _ask_gathered(self) -> None:
        """Asks for the keys that wait, if enough do or their time has ended, while fewer calls than allowed are open.

        Keys without a timer are those whose time ended when too many calls were open.
        """
        gathered = self._gathered
        while gathered and len(self._waiting) < self._capacity:
            if len(gathered) < self._keys_max and self._timer.next_ns() is not None:
                return
            keys = list(gathered)[: self._keys_max]
            found = [gathered.pop(stored) for stored in keys]
            call = found[0][1][0]
            for stored, (_, numbers) in zip(keys, found, strict=True):
                for number in numbers:
                    self._follow(number, call, stored)
            self._call(call, keys, [argument for argument, _ in found])
            if not gathered:
                self._timer.stop()

    def _call(self, call: int, keys: Sequence[Any], arguments: list[Any]) -> None:
        if self._cache is not None:
            self._asking.update(dict.fromkeys(keys, call))
        self._submit(call, (arguments,), encode_value(arguments))

    def _submit_open(self) -> None:
        """Asks the open questions again, and gathers the keys that no call has asked for."""
        arguments: dict[int, dict[Any, Any]] = {}
        for number, record in self._open.entries.items():
            if number in self._done.entries:
                continue
            argument = self._key(record)
            stored = state_key(argument)
            if (call := self._followers.entries.get(number)) is None:
                self._gathered.setdefault(stored, (argument, []))[1].append(number)
            else:
                self._waiting.setdefault(call, {}).setdefault(stored, []).append(number)
                arguments.setdefault(call, {}).setdefault(stored, argument)
        for call, asked in arguments.items():
            self._call(call, list(asked), list(asked.values()))

    def _perform(self, given: tuple[Any, ...], key: str, inside: CallLife | None = None) -> object:
        """Asks for keys, in a thread of its own. The outcome of the call has that of each key."""
        (keys,) = given
        answers = answers_of(keys, self._caller.call(given, key, inside), self._field)
        return EncodedOutcomes(tuple(encode_outcome(self._step, answer) for answer in answers))

    # --- answers

    def complete(self, number: int, outcome: bytes) -> None:
        waiting = self._waiting.pop(number)
        try:
            answered: Any = decode_outcome(outcome)
            outcomes = answered.outcomes
        except RAISED:
            outcomes = [outcome] * len(waiting)
        for (stored, numbers), found in zip(waiting.items(), outcomes, strict=True):
            if self._cache is not None:
                del self._asking[stored]
                self._store(self._cache, stored, found)
            for each in numbers:
                self._followers.delete(each)
                self._done.set(each, found)
        self._emit_done()
        self._ask_gathered()
        self._settle()

    # --- time

    def next_timer_ns(self) -> int | None:
        return self._timer.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        next_ns = self._timer.next_ns()
        return [DueTimer(next_ns, None)] if until_ns is None and next_ns is not None else self._timer.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        if due:
            self._timer.stop()
            self._ask_gathered()


def answers_of(keys: Sequence[Any], found: Any, field: str | None) -> list[Any]:
    """Returns the answer for each key, None for a missing key. An answer that is an exception is its error.

    Args:
        keys: the keys that were asked for.
        found: a mapping from key to answer, or a frame with the column ``field``, whose rows are the answers.
        field: the name of the key column; None if there is none.

    Raises:
        AnswersUnusable: it is neither, has no such column or two rows of a key, or all keys of another type.
    """
    by_key = found if isinstance(found, Mapping) else _by_key(found, field)
    try:
        answers = [by_key.get(key) for key in keys]
    except TypeError as error:  # a key without a hash, such as a list
        raise AnswersUnusable(f"keys such as {keys[0]!r:.80} cannot be keys of a dict: {error}") from error
    asked, answered = set(map(type, keys)), set(map(type, by_key))
    if by_key and not asked & answered and not any(key in by_key for key in keys):
        other = next(iter(by_key))
        raise AnswersUnusable(
            f"the answers have keys such as {other!r:.80} ({type(other).__name__}), and the question was for keys such"
            f" as {keys[0]!r:.80} ({type(keys[0]).__name__}). Return the keys as they came."
        )
    return answers


def _by_key(frame: Any, field: str | None) -> dict[Any, Any]:
    try:
        rows = as_batch(frame).to_pylist()
    except NoFrame as error:
        raise AnswersUnusable(
            f"the function returned a {type(frame).__qualname__}. Return a dict from key to answer, such as"
            " dict(zip(keys, answers)), or a frame with the key as a column."
        ) from error
    if field is None:
        raise AnswersUnusable("the function returned a frame, and on= is a function. Give on= the name of a column.")
    by_key: dict[Any, Any] = {}
    for row in rows:
        if field not in row:
            raise AnswersUnusable(f"the frame has no column {field!r}, the key; it has {', '.join(map(repr, row))}.")
        if by_key.setdefault(row[field], row) is not row:
            raise AnswersUnusable(
                f"the frame has two rows for the key {row[field]!r:.80}, and a record has one answer."
            )
    return by_key

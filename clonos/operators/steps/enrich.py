"""enrich: an answer of a service for each record, by a key, with a cache that is part of the state.

Records that wait are open calls of ``AsyncMap``, so results keep the order of the records. An answer enters the cache
where its outcome is in the causal log, and the recorded clock measures its age. So a replay finds the same answers in
the cache and makes the same calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import repeat
from typing import Any, Final, NamedTuple

from clonos.core.log.call_outcomes import decode_outcome, encode_outcome
from clonos.core.values import encode_value
from clonos.core.values.copying import copied
from clonos.core.values.keys import state_key
from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.facts import Facts, KnownInputs
from clonos.operators.operator import Scope, Times, without
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import Encoding, StateKind, StateScope, StateSpec, small
from clonos.operators.steps.async_map import AsyncMap
from clonos.operators.steps.call_attempts import CallPolicy
from clonos.operators.user_errors import RAISED

ANSWERS: Final = StateSpec(
    "answers", StateKind.TABLE, StateScope.EMPTY, encoding=Encoding.OUTCOME, encoded_place=(1, 0)
)
"""Table of the cache, the oldest answer first: key -> (outcome, its time in nanoseconds since the Unix epoch)."""

FOLLOWERS: Final = small("followers", StateScope.DRAINED)
"""Table of records that wait for the call of an earlier one with the same key: number -> number of that call."""


class NotFound(StrEnum):
    """Result of a record without an answer."""

    NONE = "none"  # a result with None
    SKIP = "skip"  # no result
    ERROR = "error"  # the error of the record


class AnswerMissing(LookupError):
    """A record has no answer, and the step asks for one."""


@dataclass(frozen=True, slots=True)
class CacheRules:
    """Rules of a cache: the answers it keeps, and for how long (None: until newer ones fill it)."""

    size: int
    ttl_ns: int | None


class Cached(NamedTuple):
    """Answer in the cache."""

    answer: Any
    outcome: bytes
    instant_ns: int


class Enrich(AsyncMap):
    """Results ``select(record, answer)``, in the order of the records."""

    called_with = (("key",),)

    _answers: Table
    _followers: Table

    @classmethod
    def facts(cls, given: KnownInputs, *functions: Any, **arguments: Any) -> Facts:
        """See ``AsyncMap``. ``functions``: the lookup, that of the key if it is the user's, and that of the result."""
        called_with = *cls.called_with, *[("record",)] * (len(functions) - 2), ("record", "answer")
        return replace(super().facts(given, **arguments), calls=tuple(map(UserFunction, functions, called_with)))

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
    ) -> None:
        super().__init__(step, lookup, capacity, True, policy)
        self._key, self._select, self._cache, self._not_found = key, select, cache, not_found
        self._nothing = Cached(None, encode_outcome(step, None), 0)
        self._asked: dict[int, Any] = {}  # open calls: number -> state key
        self._asking: dict[Any, int] = {}  # state key -> number of the open call whose answer others wait for
        self._following: dict[int, list[int]] = {}  # call -> numbers of the records that wait for it, too
        self._ready: list[tuple[Any, Any]] = []
        self._ready_times: list[int] = []

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, ANSWERS, FOLLOWERS)

    def open(self, scope: Scope) -> None:
        self._answers = scope.state.table(ANSWERS)
        self._followers = scope.state.table(FOLLOWERS)
        self._cached = {
            key: Cached(decode_outcome(outcome), outcome, instant_ns)
            for key, (outcome, instant_ns) in self._answers.contents().items()
        }
        super().open(scope)
        self._hold(len(self._asked))

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        now_ns = self._now_ns()
        first = self._number
        for record, timestamp_ns in zip(rows, times or repeat(None)):  # noqa: B905  the second one may be endless
            try:
                argument = self._key(record)
                stored = state_key(argument)
            except RAISED as error:
                self.guard.caught(error, record)
                continue
            cached = self._nothing if argument is None else self._found(stored, now_ns)
            if cached is not None and not self._open.entries:
                self._set_ready(record, copied(cached.answer), timestamp_ns)
            else:
                self._wait(record, timestamp_ns, argument, stored, cached)
        if self._number != first:
            self._next.set(0, self._number)
            self._hold(len(self._asked))
        self._emit_ready()

    def _wait(self, record: Any, timestamp_ns: int | None, argument: Any, stored: Any, cached: Cached | None) -> None:
        """Puts a record after those that wait, and asks for its answer unless it is known or asked for."""
        if self._begin(record, timestamp_ns) is None:
            return
        number, self._number = self._number, self._number + self._stride
        if cached is not None:
            self._done.set(number, cached.outcome)
        elif (call := self._asking.get(stored)) is not None:
            self._follow(number, call, stored)
        else:
            self._ask(number, argument, stored)

    def _follow(self, number: int, call: int, stored: Any) -> None:
        self._followers.set(number, call)
        self._following.setdefault(call, []).append(number)

    def _ask(self, number: int, argument: Any, stored: Any) -> None:
        self._asked[number] = stored
        if self._cache is not None:
            self._asking[stored] = number
        self._submit(number, (argument,), encode_value(argument))

    def _submit_open(self) -> None:
        for number, record in self._open.entries.items():
            if number not in self._done.entries and number not in self._followers.entries:
                argument = self._key(record)
                self._ask(number, argument, state_key(argument))
        for number, call in self._followers.entries.items():
            self._following.setdefault(call, []).append(number)

    # --- answers

    def _now_ns(self) -> int:
        has_ttl = self._cache is not None and self._cache.ttl_ns is not None
        return self._recorder.instant_ns(False) if has_ttl else 0

    def _found(self, stored: Any, now_ns: int) -> Cached | None:
        cached = self._cached.get(stored)
        return None if cached is None or self._is_old(cached, now_ns) else cached

    def _is_old(self, cached: Cached, now_ns: int) -> bool:
        ttl_ns = None if self._cache is None else self._cache.ttl_ns
        return ttl_ns is not None and now_ns - cached.instant_ns >= ttl_ns

    def complete(self, number: int, outcome: bytes) -> None:
        stored = self._asked.pop(number)
        if self._cache is not None:
            del self._asking[stored]
            self._store(self._cache, stored, outcome)
        for follower in self._following.pop(number, ()):
            self._followers.delete(follower)
            self._done.set(follower, outcome)
        self._take(number, outcome)
        self._settle()

    def _settle(self) -> None:
        self._hold(len(self._asked))
        self._emit_ready()
        self._pass_held()

    def _store(self, cache: CacheRules, stored: Any, outcome: bytes) -> None:
        try:
            answer = decode_outcome(outcome)
        except RAISED:
            return
        now_ns = self._now_ns()
        self._forget(stored)
        self._cached[stored] = Cached(answer, outcome, now_ns)
        self._answers.set(stored, (outcome, now_ns))
        while len(self._cached) > cache.size or self._is_old(next(iter(self._cached.values())), now_ns):
            self._forget(next(iter(self._cached)))

    def _forget(self, stored: Any) -> None:
        if self._cached.pop(stored, None) is not None:
            self._answers.delete(stored)

    # --- results

    def _emit(self, number: int, outcome: bytes) -> None:
        record, timestamp_ns = self._end(number)
        try:
            answer = decode_outcome(outcome)
        except RAISED as error:
            self.guard.caught(error, record)
            return
        self._set_ready(record, answer, timestamp_ns)

    def _set_ready(self, record: Any, answer: Any, timestamp_ns: int | None) -> None:
        if answer is None and self._not_found is NotFound.SKIP:
            return
        self._ready.append((record, answer))
        if timestamp_ns is not None:
            self._ready_times.append(timestamp_ns)

    def _emit_ready(self) -> None:
        ready, times = self._ready, self._ready_times
        if not ready:
            return
        self._ready, self._ready_times = [], []
        results, failed = self.guard.each(self._result, ready, pairs=[(None, record) for record, _ in ready])
        if results:
            self.out.rows(results, without(times, failed) if times else None)

    def _result(self, found: tuple[Any, Any]) -> Any:
        record, answer = found
        if answer is None and self._not_found is NotFound.ERROR:
            raise AnswerMissing(f"the step {self._step} has found no answer for the record")
        return self._select(record, answer)

"""Changed functions of asynchronous calls in a replay: each turn of a key runs with the logged outcomes of its calls.

A call that asks for something else has no logged outcome. The function ends there, unless the user lets the replay ask:
stand-ins answer, or the call is really made. A call with an effect is never made without a stand-in.

Each turn begins with the recorded state. If the replay may ask, a turn begins with what the turn before it has made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from clonos.operators.steps.keyed import STATE
from clonos.replay.going_on import HTTP
from clonos.replay.key_steps import KeyState, KeyStep
from clonos.replay.logged_functions import FunctionRun, RequestedCall, asks_nothing, run_function
from clonos.replay.seen_calls import text_of
from clonos_services.ai import SERVICE
from clonos_services.http import transported_by
from clonos_services.service import answered_by
from clonos_services.stand_ins import StandIns


class WhatIf:
    """Runs of changed functions for one key. ``made``: calls that were made, by service."""

    def __init__(self, stand_ins: StandIns | None = None, has_network: bool = False) -> None:
        """``stand_ins``: None lets the replay ask nothing. ``has_network``: what has no stand-in is really asked."""
        self.made: list[str] = []
        self._stand_ins, self._has_network = stand_ins, has_network
        self._effects = set[str]()  # services whose calls were refused because they have an effect
        self._states: dict[str, Any] = {}  # by step: state that the turns so far have made, where it is another one

    @property
    def may_ask(self) -> bool:
        """Whether calls without a logged outcome may be made."""
        return self._stand_ins is not None

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Routes calls to the stand-ins inside the ``with`` block."""
        with ExitStack() as stack:
            if self._stand_ins is not None:
                stack.enter_context(answered_by(self._stand_ins.named))
                if self._stand_ins.http is not None:
                    stack.enter_context(transported_by(self._stand_ins.answer))
            yield

    def run(self, entry: KeyStep, call: RequestedCall, instant_ns: int, before: FunctionRun | None) -> FunctionRun:
        """Runs the changed function of a call. ``before``: its run up to the event that has come."""
        if before is not None and call.parts is not None:
            call = replace(call, parts={**before.parts, **call.parts})
        given = None
        if entry.step in self._states:
            state = self._states[entry.step]
            entry.before = _state_of(state)
            given = partial(_with_state, state)
        may_ask = self._permits if self.may_ask else asks_nothing
        return run_function(call, instant_ns, may_ask=may_ask, given=given)

    def take_run(self, entry: KeyStep, run: FunctionRun, logged: bytes) -> KeyState:
        """Takes the end of a run; returns the state after it."""
        if run.unanswered:
            return entry.before
        take_outcome(entry, run.outcome)
        if run.error or run.awaits:
            return entry.before
        if self.may_ask:
            if run.outcome == logged:
                self._states.pop(entry.step, None)
            else:
                self._states[entry.step] = run.found[0]
        return _state_of(run.found[0])

    def refusal(self, service: str) -> str:
        """Describes why a call ends a turn."""
        if not self.may_ask:
            return f"the turn ends at {service}: no logged answer belongs to this request. --go-on lets the replay ask"
        if service in self._effects:
            return f"the turn ends at {service}: it has an effect, so only a stand-in answers it (--stand-ins)"
        return f"the turn ends at {service}: it has no stand-in. Give one (--stand-ins), or --allow network to ask it"

    def _permits(self, service: str, is_effect: bool) -> bool:
        assert self._stand_ins is not None, "a replay without stand-ins asks nothing"
        has_stand_in = service in self._stand_ins.named or (
            self._stand_ins.http is not None and (service == SERVICE or service.startswith(HTTP))
        )
        if has_stand_in or (self._has_network and not is_effect):
            self.made.append(service)
            return True
        if is_effect:
            self._effects.add(service)
        return False


def take_outcome(entry: KeyStep, outcome: bytes) -> None:
    """Takes the outcome of an asynchronous call."""
    run = FunctionRun()
    run.take(outcome)
    entry.error, entry.awaits = run.error, run.awaits
    if not run.error and not run.awaits:
        entry.result = text_of(run.found[1])


def _with_state(state: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    key, _, value = given
    return key, state, value


def _state_of(state: Any) -> KeyState:
    return {} if state is None else {STATE.name: state}

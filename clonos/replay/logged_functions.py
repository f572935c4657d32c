"""Functions of asynchronous calls in a replay: they run with the logged outcomes of the calls that they make.

A log has the outcome of an asynchronous call, and with ``log_calls=True`` also the outcome of each call inside, as its
*parts*. With these the function does again what it did, beside the replay, which goes on with the logged outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from clonos.core.log.call_outcomes import decode_outcome, is_value, without_usage
from clonos.core.log.call_usage import CallAccount, outcome_of
from clonos.core.model.metric_series import MetricTable
from clonos.core.ports.recorder import CANCELLED, OWN_KEY, Inside
from clonos.core.ports.task_port import TaskStopped
from clonos.core.task.call_parts import CLOCK, CallParts
from clonos.operators.steps.awaited_events import Awaits
from clonos.replay.output_comparison import shown
from clonos.replay.seen_calls import SeenCall, seeing
from clonos_services.awaiting import EVENT

ANSWERED_OTHERWISE: Final = frozenset((CLOCK, EVENT))
"""Services of which no outcome is needed: an event that has not come ends the function, as it did."""


MayAsk = Callable[[str, bool], bool]
"""Returns whether a call without a logged outcome may be made, by its service and whether it is an effect."""


def asks_nothing(service: str, is_effect: bool) -> bool:
    """Permits no call."""
    return False


class Unanswered(TaskStopped):
    """Raised in a function at a call of which the log has no outcome."""


@dataclass
class RequestedCall:
    """Asynchronous call that a step has requested. ``parts``: those that are known; None if the log has none."""

    number: int
    service: str
    key: str
    perform: partial[object]
    parts: dict[bytes, bytes] | None


@dataclass
class FunctionRun:
    """Run of a function. ``found``: what it has returned, None if it has not; ``error``: what it has raised.

    ``awaits``: the event that ended it, ``unanswered``: the service whose call did; "" if none. ``parts``: the outcomes
    of its calls by their names.
    """

    calls: list[SeenCall] = field(default_factory=list)
    found: Any = None
    error: str = ""
    awaits: str = ""
    unanswered: str = ""
    outcome: bytes = b""
    parts: dict[bytes, bytes] = field(default_factory=dict)

    def take(self, outcome: bytes) -> None:
        """Takes the outcome of the function."""
        self.outcome = outcome
        try:
            found = decode_outcome(outcome)
        except Exception as error:  # noqa: BLE001  the outcome of user code
            self.error = f"{type(error).__name__}: {error}"
            return
        if isinstance(found, Awaits):
            self.awaits = found.name
        else:
            self.found = found

    @property
    def ending(self) -> str:
        """How it has ended, such as ``returns 5``."""
        if self.unanswered:
            return f"calls {self.unanswered}, which the log does not answer"
        if self.awaits:
            return f"awaits the event {self.awaits!r}"
        return f"raises {self.error}" if self.error else f"returns {shown(self.found)}"

    def is_as_logged(self, outcome: bytes) -> bool:
        """Returns whether it has the logged outcome. Of exceptions the texts are compared, without their frames."""
        logged = FunctionRun()
        logged.take(outcome)
        return self.outcome == without_usage(outcome) if is_value(outcome) else self.error == logged.error


class LoggedParts(CallParts):
    """Parts of an asynchronous call in a replay: what no part answers ends the function, unless it may be asked."""

    def __init__(self, call: RequestedCall, port: BesideTheReplay, may_ask: MayAsk) -> None:
        account = CallAccount(MetricTable(), 1)
        super().__init__(call.number, call.key, call.parts or {}, port, has_effects=True, account=account)
        self.unanswered = ""
        self._may_ask = may_ask

    def ask_new(self, inside: Inside) -> None:
        """Refuses a call that the log does not answer. Raises: Unanswered."""
        is_effect = inside.part in self.asked_for
        if inside.service not in ANSWERED_OTHERWISE and not self._may_ask(inside.service, is_effect):
            self.unanswered = self.unanswered or inside.service
            raise Unanswered


class BesideTheReplay:
    """Port of a function that runs beside a replay: nothing of it is logged. ``instant_ns``: what the clock reads."""

    def __init__(self, instant_ns: int) -> None:
        self.instant_ns = instant_ns

    def now_ns(self) -> int:
        """Returns the instant of the replay."""
        return self.instant_ns

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        """Takes a part, which nothing needs."""
        return True


def run_function(
    call: RequestedCall,
    instant_ns: int,
    *,
    may_ask: MayAsk = asks_nothing,
    given: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None,
) -> FunctionRun:
    """Runs the function of an asynchronous call, whose parts are known.

    ``may_ask``: which calls are made that no part answers. ``given``: returns other arguments, of those of the call.
    """
    run, inside = FunctionRun(), LoggedParts(call, BesideTheReplay(instant_ns), may_ask)
    perform = call.perform if given is None else partial(call.perform.func, given(call.perform.args[0]))
    with seeing(run.calls.append):
        try:
            run.take(outcome_of(call.service, partial(perform, inside=inside), call.key))
        except Unanswered:
            pass
    run.unanswered, run.parts = inside.unanswered, inside.parts
    inside.close()
    return run


class SuspendedRun(NamedTuple):
    """Call that awaits an event. ``numbers``: of its record, and of those that have come since. ``run``: of its
    function, None if it has not run."""

    numbers: list[int | None]
    run: FunctionRun | None


class NotingRecorder:
    """Recorder of steps that notes the asynchronous calls that they request."""

    def __init__(
        self, target: Any, note: Callable[[RequestedCall], None], note_part: Callable[[int, bytes, bytes], None]
    ) -> None:
        self._target, self._note, self._note_part = target, note, note_part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def submit(
        self,
        number: int,
        service: str,
        request: bytes,
        perform: partial[object],
        parts: Mapping[bytes, bytes] | None = None,
    ) -> str:
        """Notes a request and passes it on."""
        key = str(self._target.submit(number, service, request, perform, parts))
        known = None if parts is None else {name: data for name, data in parts.items() if name != OWN_KEY}
        self._note(RequestedCall(number, service, key, perform, known))
        return key

    def cancel(self, number: int, outcome: bytes) -> None:
        """Notes that a call is cancelled, and passes it on."""
        self._note_part(number, CANCELLED, outcome)
        self._target.cancel(number, outcome)

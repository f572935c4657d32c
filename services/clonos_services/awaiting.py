"""Events that a function awaits, such as an approval: the call ends, and runs again once the event has come."""

from __future__ import annotations

from typing import Any, Final, cast

from clonos.core.log.call_outcomes import decode_outcome
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.ports.recorder import CallRecorder, EventAwaited, current
from clonos.io.system.wall_clock import Timedelta
from clonos_services.calls import observing

EVENT: Final = "event"
_RAISES: Final = object()


class EventUnavailable(JobError):
    """Code awaits an event where none can come."""

    name: str

    def __str__(self) -> str:
        return (
            f"the event {self.name!r} is awaited outside of a function whose calls are logged: use"
            " key_by(...).stateful_map_async(function, log_calls=True)."
        )


class AwaitTimeout(EnvironmentFault):
    """An event has not come in time. ``has_ended``: the input has ended before, so that it cannot come."""

    name: str
    timeout: str
    has_ended: bool

    def __str__(self) -> str:
        if self.has_ended:
            return f"the input has ended, and the event {self.name!r} has not come."
        return f"the event {self.name!r} has not come within {self.timeout}."


class CallCancelled(EnvironmentFault):
    """A ``Cancel`` has come for the key whose call this is. ``value``: that of the ``Cancel``."""

    value: Any

    def __str__(self) -> str:
        return f"the call was cancelled: {self.value!r:.200}"


@explains_calls
def await_event(name: str, *, timeout: str | float | Timedelta | None = None, default: Any = _RAISES) -> Any:
    """Returns the value of the next ``Event`` with this name for the key of the record, in the function of a
    ``stateful_map_async`` with ``log_calls=True``.

    Until it comes the call is not open: the function ends here, and neither a thread nor a process waits. Then it runs
    again from its first line, with the outcomes of its recorded calls, and goes on from here. So it may wait for days,
    and over any change of the number of tasks.

    The function must not catch ``BaseException`` around it, and need not ``await`` it.

    Args:
        name: the name of the event.
        timeout: the length of time for which it waits, by the clock of the job; by default as long as it takes. When
            the input ends, the time of each record that waits is up, once: a record that waits again is an error.
        default: what to return when the time is up, in place of an error.

    Raises:
        EventAwaited: the event has not come, which ends the function.
        AwaitTimeout: the time is up, and there is no ``default``.
        CallCancelled: a ``Cancel`` has come for the key.
        EventUnavailable: the code does not run in such a function.
    """
    recorder = current()
    if not hasattr(recorder, "is_in_strand"):
        raise EventUnavailable(name)
    inside_of = cast(CallRecorder, recorder)
    with observing(EVENT, lambda: name, False) as end:
        inside = inside_of.begin(EVENT, name.encode(), False)
        known = inside_of.known(inside)
        if known is None:
            raise EventAwaited(name, inside.part, timeout)
        try:
            found = decode_outcome(known)
        except AwaitTimeout:
            if default is _RAISES:
                raise
            found = default
        end(found)
    return found

"""Record or replay of calls: every service that calls an external system goes through ``recorded_call``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from clonos.core.log.call_outcomes import CallInDoubt, CallNeverHappened, decode_outcome, encode_outcome
from clonos.core.model.errors import JobError
from clonos.core.ports.recorder import CallRecorder, Recorder, RecordingSuspended, check_confined, current, key_inside
from clonos.core.values import encode_value
from clonos.io.interception.answers import in_thread
from clonos.io.system.entropy import random_uuid

DIGEST_BYTES: Final = 16

_SCALARS: Final = frozenset({str, bytes, int, bool, float, type(None)})

Perform = Callable[[str], object]
"""Performs a call, given its idempotency key. Returns a value that the codec can encode, or raises."""


class CallRequest(NamedTuple):
    """One recorded call, as user code makes it, live or in a replay. ``request``: digest of what identifies the
    call."""

    recorder: Recorder
    service: str
    request: bytes
    is_effect: bool


AsyncPerform = Callable[[str], Awaitable[object]]
"""As ``Perform``, in a coroutine."""

Watch = Callable[[CallRequest, Perform, Perform | None], tuple[Perform, Perform | None]]
"""Receives each recorded call, and returns the functions to perform live instead: (perform, in_doubt)."""

_watch: Watch | None = None


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Passes all recorded calls of this process to ``watch`` inside the context, for simulated worlds and for tests."""
    global _watch
    before, _watch = _watch, watch
    try:
        yield
    finally:
        _watch = before


class Cost(NamedTuple):
    """Money that a call has cost."""

    amount: float
    currency: str


CostOf = Callable[[object], Cost | None]
"""Returns what a call has cost, of the value of its outcome; None if that is not known."""


class CallAsked(NamedTuple):
    """Recorded call as user code asks for it, live or in a replay. ``identity``: the values that identify it.
    ``cost_of``: see ``recorded_call``."""

    service: str
    identity: object
    is_effect: bool
    cost_of: CostOf | None = None


Observe = Callable[[CallAsked], Callable[[object], None]]
"""Receives each recorded call before it is made or taken from the log. Returns what gets its outcome: the value, or the
exception."""

_observe: Observe | None = None


@contextmanager
def observed_by(observe: Observe) -> Iterator[None]:
    """Shows all recorded calls of this process to ``observe`` inside the context."""
    global _observe
    before, _observe = _observe, observe
    try:
        yield
    finally:
        _observe = before


@contextmanager
def observing(
    service: str, identify: Callable[[], object], is_effect: bool, cost_of: CostOf | None = None
) -> Iterator[Callable[[object], None]]:
    """Shows a call to the observer of this process, if there is one. Yields what takes the value of its outcome."""
    if _observe is None:
        yield lambda outcome: None
        return
    end = _observe(CallAsked(service, identify(), is_effect, cost_of))
    try:
        yield end
    except BaseException as error:
        end(error)
        raise


class RequestUnencodable(JobError):
    """The values that identify a call cannot be encoded."""

    service: str
    problem: str

    def __str__(self) -> str:
        return (
            f"the arguments of {self.service} cannot identify the call: {self.problem}"
            " Pass plain values, or return plain values for them by @service(request=...)."
        )


def recorded_call(
    service: str,
    identify: Callable[[], object],
    perform: Perform,
    *,
    effect: bool = False,
    in_doubt: Perform | None = None,
    cost_of: CostOf | None = None,
) -> object:
    """Returns the outcome of a call: performed and recorded when live, taken from the log in a replay. Outside a job it
    only calls ``perform``.

    ``identify``: returns what distinguishes this call from others, a value that the codec can encode; only its digest
    is recorded. ``effect`` and ``in_doubt``: as in ``Recorder.call``. ``cost_of``: for those who look at the call.

    Raises: RequestUnencodable when the result of ``identify`` cannot be encoded; the error of ``perform``.
    """
    recorder = current()
    if recorder is None:
        check_confined(service)
        return perform(key_inside() or random_uuid().hex)
    request = _request_of(service, identify)
    if _watch is not None:
        perform, in_doubt = _watch(CallRequest(recorder, service, request, effect), perform, in_doubt)
    make = partial(recorder.call, service, request, _unrecorded(perform), effect=effect)
    if in_doubt is not None:
        make = partial(make, in_doubt=_unrecorded(in_doubt))
    if _observe is None:
        return make()
    with observing(service, identify, effect, cost_of) as end:
        outcome = make()
        end(outcome)
    return outcome


async def recorded_call_inside(
    recorder: CallRecorder, service: str, identity: object, perform: AsyncPerform, *, effect: bool, is_repeatable: bool
) -> object:
    """Returns the outcome of a call that a coroutine makes inside an asynchronous call, as ``recorded_call`` does.

    ``is_repeatable``: whether a call in doubt is made again, with its key.

    Raises: CallInDoubt; the error of ``perform``.
    """
    with observing(service, lambda: identity, effect) as end:
        inside = recorder.begin(service, _request_of(service, lambda: identity), effect)
        known = recorder.known(inside)
        if known is None:
            is_new = not effect or await in_thread(partial(recorder.announce, inside))
            try:
                if not (is_new or is_repeatable):
                    raise CallInDoubt(service, inside.key)
                with RecordingSuspended(inside.key):
                    outcome: object = await perform(inside.key)
            except Exception as error:  # noqa: BLE001  the outcome, which the code gets now and in a repetition
                outcome = error
            known = recorder.end(inside, encode_outcome(service, outcome), is_new)
        found = decode_outcome(known)
        end(found)
    return found


def _request_of(service: str, identify: Callable[[], object]) -> bytes:
    """Returns the digest of what identifies a call. Raises: RequestUnencodable."""
    try:
        return blake2b(_identity_bytes(identify()), digest_size=DIGEST_BYTES).digest()
    except JobError as problem:
        raise RequestUnencodable(service, str(problem)) from problem


def _identity_bytes(identity: object) -> bytes:
    """Returns bytes that identify a request, equal in every incarnation; they are never decoded. Plain scalars by their
    text."""
    if type(identity) is tuple and _SCALARS.issuperset(map(type, identity)):
        try:
            return repr(identity).encode()
        except ValueError:  # an int of thousands of digits
            pass
    return encode_value(identity)


def reconciled(reconcile: Perform, perform: Perform) -> Perform:
    """Returns a function that resolves a call in doubt: it asks the external system, and performs the call if it never
    happened.

    The outcome of the call is what ``reconcile`` returns or raises. Calls inside ``reconcile`` have keys of their own,
    because an external system that knows requests by their key must not take the query for the call.
    """

    def settled(key: str) -> object:
        try:
            with RecordingSuspended(f"{key}/reconcile"):
                return reconcile(key)
        except CallNeverHappened:
            pass
        with RecordingSuspended(key):
            return perform(key)

    return settled


def _unrecorded(perform: Perform) -> Perform:
    def performed(key: str) -> object:
        with RecordingSuspended(key):
            return perform(key)

    return performed

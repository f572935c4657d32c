"""Record or replay, written once: every service that calls the outside goes through ``recorded_call``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, NamedTuple

from clonos.core.log.call_outcomes import CallNeverHappened
from clonos.core.model.errors import JobError
from clonos.core.ports.recorder import Recorder, Suspended, check_outside, current, key_inside
from clonos.core.values import encode_value
from clonos.io.system.entropy import random_uuid

DIGEST_BYTES: Final = 16

_SCALARS: Final = frozenset({str, bytes, int, bool, float, type(None)})

Perform = Callable[[str], object]
"""Does it, given the idempotency key; returns a value that the codec can carry, or raises."""


class Asking(NamedTuple):
    """One recorded call, as user code makes it, live or in a replay. ``request``: a digest of what identifies it."""

    recorder: Recorder
    service: str
    request: bytes
    is_effect: bool


Watch = Callable[[Asking, Perform, Perform | None], tuple[Perform, Perform | None]]
"""Hears of each recorded call and answers what shall be performed live instead: (perform, in_doubt)."""

_watch: Watch | None = None


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Inside, all recorded calls of this process pass a watch: for simulated worlds and for tests."""
    global _watch
    before, _watch = _watch, watch
    try:
        yield
    finally:
        _watch = before


class RequestUnencodable(JobError):
    """What identifies a call holds something that the codec cannot carry."""

    service: str
    problem: str

    def __str__(self) -> str:
        return (
            f"the arguments of {self.service} do not identify the call, since they are no plain values: {self.problem}"
            " Pass plain values, or say what identifies the call with @service(request=function of the arguments)."
        )


def recorded_call(
    service: str,
    identify: Callable[[], object],
    perform: Perform,
    *,
    effect: bool = False,
    in_doubt: Perform | None = None,
) -> object:
    """The outcome of ``perform``, from the outside or from the log. Outside a job ``perform`` is simply called.

    ``identify``: what tells this call from others, a value that the codec carries; only its digest goes on.
    ``effect`` and ``in_doubt``: as in ``Recorder.call``.
    """
    recorder = current()
    if recorder is None:
        check_outside(service)
        return perform(key_inside() or random_uuid().hex)
    try:
        request = blake2b(_identity_bytes(identify()), digest_size=DIGEST_BYTES).digest()
    except JobError as problem:
        raise RequestUnencodable(service, str(problem)) from problem
    if _watch is not None:
        perform, in_doubt = _watch(Asking(recorder, service, request, effect), perform, in_doubt)
    if in_doubt is None:
        return recorder.call(service, request, _outside_the_log(perform), effect=effect)
    return recorder.call(
        service, request, _outside_the_log(perform), effect=effect, in_doubt=_outside_the_log(in_doubt)
    )


def _identity_bytes(identity: object) -> bytes:
    """Bytes that tell a request from others, the same in every life; never read back. Plain scalars by their text."""
    if type(identity) is tuple and _SCALARS.issuperset(map(type, identity)):
        try:
            return repr(identity).encode()
        except ValueError:  # an int of thousands of digits
            pass
    return encode_value(identity)


def reconciled(reconcile: Perform, perform: Perform) -> Perform:
    """What settles a call in doubt: the outside is asked by the key, and the call is made if it never happened.

    What ``reconcile`` returns or raises is the call's outcome. Calls that it makes itself have keys of their own: an
    outside that knows requests by their key must not take the question for the call.
    """

    def settled(key: str) -> object:
        try:
            with Suspended(f"{key}/reconcile"):
                return reconcile(key)
        except CallNeverHappened:
            pass
        with Suspended(key):
            return perform(key)

    return settled


def _outside_the_log(perform: Perform) -> Perform:
    def performed(key: str) -> object:
        with Suspended(key):
            return perform(key)

    return performed

"""What a running task offers the causal services, and how they find it.

The contract between ``clonos_services`` above and the task below. Rules:

- One object is one incarnation of one task and is never used for another: the services hang on it what lives as long
  (the streams of an epoch), by weak reference, so a slotted class names ``__weakref__``.
- It is bound (``bind`` or ``running``) in the context in which user code runs, and in no other thread.
- User code sees the same whether the log is being replayed or written. Only ``live`` tells, for services whose
  effect nobody in the job sees: the logger.

The coarse clock (option ``clock_tick_ms``). Reading the clock then costs no entry, so no entry may be made by the
read: a step that has read one tick and died unlogged would read another in the next life. The task looks at its clock
where a step begins, before the ``STEP`` or ``READ``, and records ``CLOCK`` there when ``tick_due_ns`` names a new tick
(a ``TIMER`` carries its own instant). A read returns the last instant, without an entry; replay takes a ``CLOCK`` that
stands before a step at the same place. ``exact`` reads are recorded where they are made, as ever, and later ticks are
above them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from hashlib import blake2b
from typing import Protocol

from clonos.core.model.errors import JobError


class Recorder(Protocol):
    """What the running task offers the causal services; the only door to the causal log."""

    @property
    def live(self) -> bool:
        """False while the causal log is being replayed."""

    @property
    def epoch(self) -> int:
        """The label of the current epoch. Luck starts anew with each."""

    def instant_ns(self, exact: bool) -> int:
        """CLOCK: wall clock, ns since the Unix epoch. It never runs backwards; one instant a step unless ``exact``."""

    def seed(self) -> bytes:
        """SEED of the current epoch: 16 bytes, the same however often it is asked for."""

    def call(
        self,
        service: str,
        request: bytes,
        perform: Callable[[str], object],
        *,
        effect: bool = False,
        in_doubt: Callable[[str], object] | None = None,
    ) -> object:
        """One recorded call of the outside; the task's thread waits for it.

        Replay: the recorded outcome is returned or raised, nothing is called. Live: ``perform(idempotency_key)`` is
        called; its value or ``Exception`` goes through ``outcomes.encode_outcome`` into CALL, and what
        ``outcomes.decode_outcome`` makes of these bytes is returned or raised, so that both lives see the same.

        ``service``: names the call in the log and in messages. ``request``: a digest, part of the key and never logged
        in clear. ``effect``: the outside is changed; INTENT, the keeper's acknowledgement, then ``perform``; a task
        whose step does not declare ``effects=True`` raises a ``JobError``. ``in_doubt``: called with the key instead of
        ``perform`` where an INTENT without outcome was found, that is when an earlier life died during the call;
        ``perform`` again for what is idempotent. None: ``outcomes.CallInDoubt`` is the outcome.
        """


class CallingRecorder(Recorder, Protocol):
    """A recorder that takes asynchronous calls too, for operators that make them."""

    def limit_calls(self, capacity: int) -> None:
        """At most about so many asynchronous calls are to be open: the task takes no more input than there is room."""

    def submit(self, number: int, service: str, request: bytes, perform: Callable[[str], object]) -> None:
        """Asks for an asynchronous call, which no thread waits for: ``perform(idempotency_key)`` is made beside the
        task, once it is live, and its outcome comes back by ``CallingChain.complete``, in the recorded order.

        ``number``: of its own in the task's life since the job's start, and of this request in every incarnation.
        """


class _Inside:
    """A call of the outside that is being made; calls inside it have keys of their own, the same at every repeat."""

    __slots__ = ("key", "made")

    def __init__(self, key: str) -> None:
        self.key = key
        self.made = 0

    def count_call(self) -> int:
        """Counts a call inside; returns its number."""
        self.made += 1
        return self.made


_bound: ContextVar[Recorder | None] = ContextVar("clonos_recorder", default=None)
_inside: ContextVar[_Inside | None] = ContextVar("clonos_inside_call", default=None)

current: Callable[[], Recorder | None] = _bound.get
"""The recorder of the task whose code runs here; None where no task runs: services are then the real thing."""


def bind(recorder: Recorder) -> Token[Recorder | None]:
    """For a thread or greenlet that runs one task for all its life."""
    return _bound.set(recorder)


def unbind(token: Token[Recorder | None]) -> None:
    """Undoes ``bind``."""
    _bound.reset(token)


@contextmanager
def running(recorder: Recorder) -> Iterator[None]:
    """The services used inside belong to this task."""
    token = _bound.set(recorder)
    try:
        yield
    finally:
        _bound.reset(token)


class Suspended:
    """Around a call of the outside: its outcome covers what it does, so services inside are the real thing.

    Otherwise a service used by a service would be logged before the call that replay asks for first. ``key``: the
    call's idempotency key. Without one: around a thread that runs a connector's code beside the task.
    """

    __slots__ = ("_bound", "_inside", "_key")

    def __init__(self, key: str = "") -> None:
        self._key = key

    def __enter__(self) -> None:
        self._bound = _bound.set(None)
        self._inside = _inside.set(_Inside(self._key))

    def __exit__(self, *_failure: object) -> None:
        _inside.reset(self._inside)
        _bound.reset(self._bound)


def key_inside() -> str:
    """The idempotency key of the next call that a call of the outside makes; empty where none is being made."""
    inside = _inside.get()
    if inside is None or not inside.key:
        return ""
    return blake2b(f"{inside.key}/{inside.count_call()}".encode(), digest_size=16).hexdigest()


class ServiceOutsideTask(JobError):
    """User code used a causal service where the task cannot record it, most likely in a thread of its own."""

    service: str

    def __str__(self) -> str:
        return (
            f"{self.service} was used in a slot, but not by the thread of its task: what it gives could not be"
            " recorded, and would differ after a failure. Use causal services in the functions of a step, not in"
            " threads, executors or at import of a module."
        )


_confined = False


@contextmanager
def confined_services() -> Iterator[None]:
    """Around the life of a slot's process: a service raises where no task runs and no call of the outside is made.

    Without it a thread that user code starts would silently get the real clock, randomness and outside.
    """
    global _confined
    before, _confined = _confined, True
    try:
        yield
    finally:
        _confined = before


def check_outside(service: str) -> None:
    """Called by a service that found no task and is about to be the real thing."""
    if _confined and _inside.get() is None:
        raise ServiceOutsideTask(service)


def tick_due_ns(last_ns: int, live_ns: int, tick_ns: int) -> int | None:
    """The tick to record before the next step of a task with a coarse clock; None if the last instant still holds.

    ``last_ns``: the task's last instant, 0 if it has none yet. ``live_ns``: now. Ticks are multiples of ``tick_ns``.
    """
    due_ns = live_ns - live_ns % tick_ns
    return due_ns if due_ns > last_ns else None

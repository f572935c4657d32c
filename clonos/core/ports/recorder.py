"""Port between the causal services and the running task: its recorder, and how services find it.

Rules for ``clonos_services`` above and the task below:

- A recorder belongs to one incarnation of one task. Services attach to it, by weak reference, what lives as long as the
  incarnation, such as the random streams of an epoch. So a class with slots needs ``__weakref__``.
- It is bound (``bind`` or ``running``) in the context in which user code runs, and in no other thread.
- User code sees the same in replay and live. Only ``live`` tells them apart, for services whose effect nothing in the
  job observes: the logger. Metrics need no such distinction: they are state.

The coarse clock (option ``clock_tick_ms``): reading it writes no entry, and so must not depend on when it is read. A
step that read a tick and died before its log was shipped would otherwise read another tick in replay. Therefore the
task reads its clock at the beginning of a step, before the ``STEP`` or ``READ``, and records ``CLOCK`` there when
``tick_due_ns`` names a new tick (a ``TIMER`` carries its own timestamp). Reads return the last timestamp, and replay
takes the ``CLOCK`` before the step at the same place. ``exact`` reads are recorded where they happen, and later ticks
are above them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from clonos.core.model.errors import JobError
from clonos.core.model.metric_series import MetricTable


class Recorder(Protocol):
    """Interface of the running task to the causal services, the only access to its causal log."""

    @property
    def live(self) -> bool:
        """Whether new determinants are recorded; False while the causal log is replayed."""

    @property
    def epoch(self) -> int:
        """Label of the current epoch. Random streams restart with each epoch."""

    def instant_ns(self, exact: bool) -> int:
        """Returns the wall clock in ns since the Unix epoch (CLOCK).

        It never runs backwards and changes once per step unless ``exact``.
        """

    @property
    def metric_table(self) -> MetricTable:
        """Series of the metrics of user code, and late records. They belong to the state of the task, which has one
        table in all its life."""

    def metrics(self, name: str) -> MetricTable:
        """Returns ``metric_table`` for the first use of the metric ``name``.

        Raises: JobError, in ``open``.
        """

    def seed(self) -> bytes:
        """Returns the 16 bytes of the current epoch's SEED, the same at each call."""

    def call(
        self,
        service: str,
        request: bytes,
        perform: Callable[[str], object],
        *,
        effect: bool = False,
        in_doubt: Callable[[str], object] | None = None,
    ) -> object:
        """Makes one recorded call of an external service, for which the task's thread waits.

        In replay it returns or raises the recorded outcome and calls nothing. Live it calls
        ``perform(idempotency_key)``, records the value or ``Exception`` as CALL, and returns or raises what decoding
        these bytes gives, so that both see the same object.

        ``service`` names the call in the log and in messages. ``request`` is a digest, part of the key and never logged
        in clear. ``effect``: the call changes the external system, so INTENT and the keepers' acknowledgement come
        before ``perform``. ``in_doubt`` is called with the key, in place of ``perform``, if the log ends with an INTENT
        without outcome because an earlier incarnation died during the call. Pass ``perform`` again for idempotent
        calls; without it the outcome is ``CallInDoubt``.

        Raises: JobError, if ``effect`` is set in a step that does not declare ``effects=True``.
        """


OWN_KEY: Final = b""
"""Name of the part of an asynchronous call that has its own key."""

CANCELLED: Final = b"cancelled"
"""Name of the part of an asynchronous call that is cancelled: the outcome that one of its calls inside gets."""


class Inside(NamedTuple):
    """Call inside an asynchronous call. ``part``: the name of its outcome if that is a value."""

    service: str
    asked: int
    part: bytes
    key: str


class CallingRecorder(Recorder, Protocol):
    """Recorder for operators that make asynchronous calls."""

    def limit_calls(self, capacity: int, held_max: int = 0) -> None:
        """Limits the open asynchronous calls to about ``capacity``: the task takes no more input than there is room
        for. ``held_max``: how many records may wait for the calls of others, if that is more than about 1,000.
        """

    def submit(
        self,
        number: int,
        service: str,
        request: bytes,
        perform: Callable[..., object],
        parts: Mapping[bytes, bytes] | None = None,
    ) -> str:
        """Requests an asynchronous call: ``perform(idempotency_key)`` runs beside the task once it is live.

        Its outcome arrives through ``CallingChain.complete``, in recorded order. ``number`` is unique in the task since
        the job's start and identifies the same request in every incarnation.

        ``parts``: those that the state has of this call, if the calls inside have entries of their own. ``perform``
        then gets a ``CallLife`` as its argument ``inside``, and further parts arrive through
        ``CallingChain.take_part``. ``OWN_KEY`` is the name of the key of the call itself, which a later generation
        needs. Returns the key.
        """

    def cancel(self, number: int, outcome: bytes) -> None:
        """Lets the next new call inside an open call have ``outcome``, an encoded exception, in place of its own. The
        first cancellation of a call counts. ``CANCELLED`` is its name among the parts of the state.
        """


class CallLife(Protocol):
    """Life of the code of one asynchronous call, whose calls inside have entries of their own."""

    def attempt(self, number: int, strand: Callable[[], object]) -> AbstractContextManager[Callable[[], None]]:
        """Binds a ``CallRecorder`` for attempt ``number``, from 0 on, of the code. Yields a function to call where the
        code begins, in its own thread or coroutine.

        ``strand``: says which thread or coroutine asks.
        """


class CallRecorder(Recorder, Protocol):
    """Recorder of one attempt of the code of an asynchronous call, whose calls inside have entries of their own.

    ``call`` makes one of them and waits. A coroutine makes one by the methods from ``begin`` to ``end``, and waits in
    between; ``announce`` blocks. Only the coroutine or thread in which the code began has a clock and random numbers.
    """

    def is_in_strand(self) -> bool:
        """Returns whether the code that asks runs where the code of the call began."""

    def passing_ns(self) -> int:
        """Returns the wall clock, which goes on from ``instant_ns``: a repetition reads about the same."""

    def begin(self, service: str, request: bytes, effect: bool) -> Inside:
        """Returns the names of the next call inside with this request. Raises: EffectUndeclared."""

    def known(self, inside: Inside) -> bytes | None:
        """Returns the outcome that the log has, None if it has none."""

    def announce(self, inside: Inside) -> bool:
        """Announces a call with an effect, and waits until the keepers know of it.

        Returns False if it is in doubt: it was announced before, and nobody knows whether it took place.
        """

    def end(self, inside: Inside, outcome: bytes, is_new: bool) -> bytes:
        """Logs the outcome of a call inside, and returns the outcome that counts: the first.

        ``is_new``: the call was made, and not resolved because it was in doubt.
        """


class EventAwaited(BaseException):
    """Signal from the code of an asynchronous call that it cannot go on before an event comes. It ends the code, which
    runs again with the event. ``part``: the name under which that will be known. No ``Exception``, so that code which
    catches all errors passes it on. ``timeout``: the length of time for which it waits, as the user gave it; None: as
    long as it takes."""

    def __init__(self, name: str, part: bytes, timeout: object = None) -> None:
        super().__init__(name)
        self.name, self.part, self.timeout = name, part, timeout


class HoldingRecorder(CallingRecorder, Protocol):
    """Recorder for operators whose records also wait for the calls of others."""

    def hold(self, count: int) -> None:
        """Adds ``count`` to the records that wait without a call of their own, or subtracts: the task takes no more
        input while too many wait.
        """


class _Inside:
    """External call that is being made.

    Calls inside it have keys derived from its key, the same at every repetition.
    """

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
"""Returns the recorder of the task whose code runs here, None outside tasks, where services use the real world."""


def bind(recorder: Recorder) -> Token[Recorder | None]:
    """Binds a recorder in a thread or greenlet that runs one task for all its life."""
    return _bound.set(recorder)


def unbind(token: Token[Recorder | None]) -> None:
    """Reverts ``bind``."""
    _bound.reset(token)


@contextmanager
def running(recorder: Recorder) -> Iterator[None]:
    """Binds a recorder for the duration of a ``with`` block."""
    token = _bound.set(recorder)
    try:
        yield
    finally:
        _bound.reset(token)


class RecordingSuspended:
    """Context of an external call: services used inside are not recorded, because the call's outcome covers them.

    Otherwise a service used by a service would be logged before the call that replay expects first. ``key`` is the
    call's idempotency key; it is empty around a thread that runs a connector's code beside the task.
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
    """Returns the idempotency key of the next call that the current external call makes; empty if none is being
    made.
    """
    inside = _inside.get()
    if inside is None or not inside.key:
        return ""
    return blake2b(f"{inside.key}/{inside.count_call()}".encode(), digest_size=16).hexdigest()


def is_inside_call() -> bool:
    """Returns whether the code here is that of an external call, whose outcome is recorded, or of a connector beside
    the task.
    """
    return _inside.get() is not None


class ServiceWhileOpening(JobError):
    """Error for user code that uses a causal service in ``open``, which runs again in every incarnation."""

    task: str
    service: str

    def __str__(self) -> str:
        return (
            f"task {self.task} used {self.service} in open. Every incarnation of a task runs open again, after another"
            " checkpoint, so the result could not be repeated. Use the service when the first element arrives, and keep"
            " the result as state."
        )


class ClockReadTooOften(JobError):
    """Error for user code that reads the clock in a loop: each reading is an entry of the task's log."""

    task: str
    readings_max: int

    def __str__(self) -> str:
        return (
            f"task {self.task} has read the clock more than {self.readings_max:,} times in one step. Each reading is an"
            " entry of its causal log. Wait with time.sleep in place of a loop over the clock, read it once per record,"
            " or use clock.time() of clonos without exact=True, which has one entry per step."
        )


class EffectUndeclared(JobError):
    """Error for user code that calls a service with an external effect in a step that does not declare effects."""

    task: str
    service: str

    def __str__(self) -> str:
        return (
            f"task {self.task} called {self.service}, which changes an external system, in a step that does not declare"
            " effects. Declare the step with effects=True, or the call as idempotent (intent=False)."
        )


class MetricInCall(JobError):
    """Code of a recorded call used a metric: a replay takes the outcome from the log, and would not count it again."""

    name: str

    def __str__(self) -> str:
        return (
            f"the metric {self.name} was used in a recorded call (a @service, a call of map_async, or a connector),"
            " which a replay does not repeat. Use it in the function of a step, where the outcome arrives."
        )


class ServiceWithoutTask(JobError):
    """Error for a causal service used where the task cannot record it, most likely in a thread of the user's."""

    service: str

    def __str__(self) -> str:
        return (
            f"{self.service} was used in a slot, but not by the thread of a task: its result could not be"
            " recorded, and would differ after a failure. Use causal services in the functions of a step, not in"
            " threads, executors or at import of a module."
        )


_confined = False


@contextmanager
def confined_services() -> Iterator[None]:
    """Makes services raise outside tasks and external calls, for the life of a slot's process.

    Otherwise a thread that user code starts would use the real clock, randomness and services unnoticed.
    """
    global _confined
    before, _confined = _confined, True
    try:
        yield
    finally:
        _confined = before


def check_confined(service: str) -> None:
    """Checks that a service may use the real world; services call it when they find no task.

    Raises: ServiceWithoutTask, if services are confined here and no external call is being made.
    """
    if _confined and _inside.get() is None:
        raise ServiceWithoutTask(service)


def tick_due_ns(last_ns: int, live_ns: int, tick_ns: int) -> int | None:
    """Returns the tick to record before the next step of a task with a coarse clock, or None if the last one still
    holds.

    ``last_ns`` is the task's last timestamp, 0 without one; ``live_ns`` is the current time. Ticks are multiples of
    ``tick_ns``.
    """
    due_ns = live_ns - live_ns % tick_ns
    return due_ns if due_ns > last_ns else None

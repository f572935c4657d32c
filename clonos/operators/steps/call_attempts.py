"""How map_async makes one call: retries, timeouts, limits per key, and an event loop for ``async def``.

All of this happens in the threads of calls. What comes of it is one outcome, which is recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from importlib import import_module
from threading import Event, Lock, Semaphore, Thread
from typing import TYPE_CHECKING, Any, Final

from clonos.core.ports.recorder import CallLife, RecordingSuspended
from clonos.core.values.copying import copied
from clonos.core.values.keys import state_key
from clonos.io.interception.answers import Answers, answered_with, strand
from clonos.io.system.pace import Pace
from clonos.io.system.wall_clock import monotonic_ns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

KEY_PARAMETER: Final = "idempotency_key"

NANOSECONDS_PER_SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """Rules of the calls of a step.

    A call that raises is repeated up to ``retries`` times, after a pause of ``retry_after_ns`` that doubles each time.
    At most ``per_key`` calls run at once whose records have the same ``key``. ``timeout_ns`` is that of an attempt.
    ``rate`` is the greatest number of attempts per second of all tasks of the step.
    """

    timeout_ns: int | None = None
    retries: int = 0
    retry_after_ns: int = 0
    key: Callable[[Any], Any] | None = None
    per_key: int = 1
    rate: float | None = None


class Caller:
    """Maker of the calls of one step in one incarnation, in several threads at once."""

    def __init__(self, step: str, function: Callable[..., Any], policy: CallPolicy) -> None:
        self._function, self._policy = function, policy
        self._takes_key = takes_key(function)
        if is_asynchronous(function):
            import_module("asyncio")  # 15 ms, which are not to be part of the first call
        self._loop = CallLoop(step)
        self._turns = Turns(policy.per_key)
        self._is_closed = Event()
        self._pace = Pace()
        self._every_ns = 0
        self.answers: Answers | None = None  # for functions of Python and of libraries, where calls inside are logged

    def share_rate(self, tasks: int) -> None:
        """Gives this task its share of the rate of the step."""
        if self._policy.rate is not None:
            self._every_ns = int(NANOSECONDS_PER_SECOND * tasks / self._policy.rate)

    def call(self, given: tuple[Any, ...], key: str, inside: CallLife | None = None) -> Any:
        """Makes the call with these arguments; the attempts have the same idempotency key, and each gets copies.

        The arguments stay as they came: they are state of the task until the call is complete. ``inside``: records the
        calls that the function makes.
        """
        of = self._policy.key
        if of is None:
            return self._repeated(given, key, inside)
        with self._turns.of(of(*given)):
            return self._repeated(given, key, inside)

    def skip_pauses(self) -> None:
        """Leaves out all pauses from now on, because the attempts are those of a replay."""
        self._is_closed.set()

    def close(self) -> None:
        """Ends the event loop and all pauses."""
        self._is_closed.set()
        self._loop.close()

    def _repeated(self, given: tuple[Any, ...], key: str, inside: CallLife | None) -> Any:
        for attempt in range(self._policy.retries):
            try:
                return self._once(given, key, inside, attempt)
            except Exception:  # noqa: BLE001  the last attempt raises what it raises
                pause_ns = self._policy.retry_after_ns << attempt
                self._is_closed.wait(pause_ns / NANOSECONDS_PER_SECOND)
        return self._once(given, key, inside, self._policy.retries)

    def _once(self, given: tuple[Any, ...], key: str, inside: CallLife | None, attempt: int) -> Any:
        if (pause_ns := self._pace.take(monotonic_ns(), self._every_ns)) > 0:
            self._is_closed.wait(pause_ns / NANOSECONDS_PER_SECOND)
        with self._recording(key, inside, attempt) as begin:
            begin()
            called = self._function(*copied(given), **({KEY_PARAMETER: key} if self._takes_key else {}))
            if not inspect.iscoroutine(called):
                return called
            return self._loop.run(called if inside is None else _begun(called, begin), self._policy.timeout_ns)

    @contextmanager
    def _recording(self, key: str, inside: CallLife | None, attempt: int) -> Iterator[Callable[[], None]]:
        if inside is None:
            with RecordingSuspended(key):
                yield lambda: None
        else:
            with inside.attempt(attempt, strand) as begin, answered_with(self.answers):
                yield begin


class CallLoop:
    """Event loop of one step in a thread, which begins with the first call."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._lock = Lock()
        self._begun = Event()
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._is_closed = False
        self._tasks: dict[Future[Any], asyncio.Task[Any] | None] = {}
        """Tasks by the futures that callers wait for; None before they have begun."""

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout_ns: int | None) -> Any:
        """Awaits a coroutine in the loop, in the context of the caller, which waits.

        Raises: TimeoutError: it took longer than ``timeout_ns``.
        """
        context, done = copy_context(), Future[Any]()

        def start() -> None:
            assert self._loop is not None, "a loop that has begun exists"
            task = self._tasks[done] = self._loop.create_task(_within(coroutine, timeout_ns), context=context)
            task.add_done_callback(lambda task: self._finish(task, done))

        try:
            self._tasks[done] = None
            self._begin().call_soon_threadsafe(start)
            return done.result()
        finally:
            del self._tasks[done]
            coroutine.close()  # it has ended, or it never began

    def close(self) -> None:
        """Cancels what runs and ends the thread."""
        with self._lock:
            self._is_closed = True
        if self._thread is not None and self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _begin(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"the calls of {self._step} have ended")
            if self._thread is None:
                self._thread = Thread(target=self._serve, name=f"event loop of {self._step}", daemon=True)
                self._thread.start()
        self._begun.wait()
        assert self._loop is not None, "a loop that has begun exists"
        return self._loop

    def _serve(self) -> None:
        import asyncio

        try:
            asyncio.run(self._until_closed())
        finally:
            for done in list(self._tasks):
                if not done.done():
                    done.set_exception(RuntimeError(f"the calls of {self._step} have ended"))

    async def _until_closed(self) -> None:
        import asyncio

        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        await self._end.wait()

    def _finish(self, task: asyncio.Task[Any], done: Future[Any]) -> None:
        if task.cancelled():
            done.set_exception(RuntimeError(f"a call of {self._step} was cancelled"))
        elif (error := task.exception()) is not None:
            done.set_exception(error)
        else:
            done.set_result(task.result())


class Turns:
    """Semaphores of keys, each of which exists while a call of its key waits or runs."""

    def __init__(self, per_key: int) -> None:
        self._per_key = per_key
        self._lock = Lock()
        self._waiting: dict[Any, tuple[Semaphore, int]] = {}

    @contextmanager
    def of(self, key: Any) -> Iterator[None]:
        """Waits until another call of the key may run."""
        stored = state_key(key)
        with self._lock:
            turn, count = self._waiting.get(stored, (Semaphore(self._per_key), 0))
            self._waiting[stored] = turn, count + 1
        try:
            with turn:
                yield
        finally:
            with self._lock:
                turn, count = self._waiting.pop(stored)
                if count > 1:
                    self._waiting[stored] = turn, count - 1


def takes_key(function: Callable[..., Any]) -> bool:
    """Returns whether a function has a parameter for the idempotency key of a call."""
    try:
        return KEY_PARAMETER in inspect.signature(function).parameters
    except ValueError:  # a built-in function or class, such as int, which shows no parameters
        return False


def is_asynchronous(function: Any) -> bool:
    """Returns whether a call of the function returns a coroutine: it is ``async def``, or its ``__call__`` is."""
    while hasattr(function, "func"):  # a partial
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def _begun(coroutine: Coroutine[Any, Any, Any], begin: Callable[[], None]) -> Any:
    begin()
    return await coroutine


async def _within(coroutine: Coroutine[Any, Any, Any], timeout_ns: int | None) -> Any:
    if timeout_ns is None:
        return await coroutine
    import asyncio

    timeout_s = timeout_ns / NANOSECONDS_PER_SECOND
    try:
        return await asyncio.wait_for(coroutine, timeout_s)
    except TimeoutError as error:
        raise TimeoutError(f"the call took longer than {timeout_s:g} s") from error

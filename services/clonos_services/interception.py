"""Functions of Python and of HTTP clients as causal services, for steps with ``intercept=True``.

``ANSWERS`` says how each of them is recorded and replayed. Inside a recorded call, and outside of tasks, they are the
originals. Every reading of a clock is recorded, as with ``exact=True``, so that a loop that waits for a time ends.
What no answer can record is refused by its name.
"""

from __future__ import annotations

import random as stdlib
from collections.abc import Callable
from hashlib import shake_256
from typing import Any, Final, cast
from uuid import UUID

from clonos.core.model.errors import JobError
from clonos.core.ports.recorder import CallRecorder, Recorder, current
from clonos.io.interception.answers import Answer, Answers
from clonos.io.interception.patches import CPU_CLOCKS, DRAWS, NUMPY_DRAWS
from clonos.io.system.wall_clock import UTC, local_time
from clonos_services import random
from clonos_services.calls import recorded_call
from clonos_services.epoch_rng import source_of
from clonos_services.intercepted_aiohttp import aiohttp_request_inside
from clonos_services.intercepted_http import httpx_request, httpx_request_inside, urllib3_request, urllib_request

NANOSECONDS_PER_SECOND: Final = 1_000_000_000
ENTROPY_BYTES: Final = 32
GREGORIAN_TICKS: Final = 0x01B2_1DD2_1381_4000
"""Ticks of 100 ns from the begin of the Gregorian calendar to 1970, which UUIDs of version 1 count from."""


class NotIntercepted(JobError):
    """Error for user code that uses, in a step with ``intercept=True``, what cannot be recorded."""

    function: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.function} cannot be recorded in a step with intercept=True: {self.reason}."
            " A replay would not repeat it (docs/services.md, Libraries as they are)."
        )


class EpochEntropy:
    """Random bytes of an epoch, as unpredictable as its seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed.to_bytes(ENTROPY_BYTES, "big")
        self._drawn = 0

    def draw(self, count: int) -> bytes:
        """Returns the next ``count`` bytes."""
        self._drawn += 1
        return shake_256(self._seed + self._drawn.to_bytes(8, "big")).digest(count)


def _in_task(answer: Callable[..., Any]) -> Answer:
    """Returns an answer for tasks: ``answer(recorder, original, ...)``."""

    def answered(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        recorder = current()
        if recorder is None:
            return original(*args, **named)
        return answer(recorder, original, *args, **named)

    return answered


def _in_strand(answer: Callable[..., Any]) -> Answer:
    """Returns an answer that other coroutines and threads of an asynchronous call do not get: they get the original."""

    def answered(recorder: Recorder, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        call = _logged_call(recorder)
        if call is not None and not call.is_in_strand():
            return original(*args, **named)
        return answer(recorder, original, *args, **named)

    return _in_task(answered)


def _in_step(answer: Callable[..., Any]) -> Answer:
    """Returns an answer that asynchronous calls do not get: they get the original."""

    def answered(recorder: Recorder, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if _logged_call(recorder) is not None:
            return original(*args, **named)
        return answer(recorder, original, *args, **named)

    return _in_task(answered)


def _logged_call(recorder: Recorder) -> CallRecorder | None:
    """Returns the recorder of an asynchronous call whose calls are logged; None for that of a step."""
    return cast(CallRecorder, recorder) if hasattr(recorder, "is_in_strand") else None


def _instant_ns(recorder: Recorder) -> int:
    call = _logged_call(recorder)
    return recorder.instant_ns(True) if call is None else call.passing_ns()


def _entropy(recorder: Recorder, count: int) -> bytes:
    return source_of(recorder, "entropy", "", EpochEntropy).draw(count)


# ---------------------------------------------------------------------- clocks


def _seconds(recorder: Recorder, _original: Any) -> float:
    return _instant_ns(recorder) / NANOSECONDS_PER_SECOND


def _nanoseconds(recorder: Recorder, _original: Any) -> int:
    return _instant_ns(recorder)


def _sleep(recorder: Recorder, original: Callable[[float], None], seconds: float, /) -> None:
    if recorder.live:
        original(seconds)


def _of_now(recorder: Recorder, original: Callable[..., Any], seconds: float | None = None, /) -> Any:
    """``localtime``, ``gmtime`` and ``ctime``, which take the time if they get none."""
    return original(_seconds(recorder, None) if seconds is None else seconds)


def _asctime(recorder: Recorder, original: Callable[..., Any], *when: Any) -> Any:
    return original(*when) if when else original(_local_now(recorder))


def _strftime(recorder: Recorder, original: Callable[..., Any], form: str, *when: Any) -> Any:
    return original(form, *when) if when else original(form, _local_now(recorder))


def _local_now(recorder: Recorder) -> Any:
    return local_time(_seconds(recorder, None))


def _datetime_now(recorder: Recorder, _original: Any, cls: Any, tz: Any = None) -> Any:
    second, rest = divmod(_instant_ns(recorder), NANOSECONDS_PER_SECOND)
    return cls.fromtimestamp(second, tz).replace(microsecond=rest // 1_000)


def _datetime_utcnow(recorder: Recorder, original: Any, cls: Any) -> Any:
    return _datetime_now(recorder, original, cls, UTC).replace(tzinfo=None)


# ---------------------------------------------------------------------- randomness


def _drawn(name: str) -> Callable[..., Any]:
    def draw(_recorder: Recorder, _original: Any, *args: Any, **named: Any) -> Any:
        return getattr(random, name)(*args, **named)

    return draw


def _seeded(
    recorder: Recorder, original: Callable[..., None], own: stdlib.Random, a: Any = None, version: int = 2
) -> None:
    """``Random()`` without a seed takes one of the operating system."""
    original(own, int.from_bytes(_entropy(recorder, ENTROPY_BYTES), "big") if a is None else a, version)


def _urandom(recorder: Recorder, _original: Any, count: int, *_flags: int) -> bytes:
    return _entropy(recorder, count)


def _uuid1(recorder: Recorder, _original: Any, node: int | None = None, clock_seq: int | None = None) -> UUID:
    ticks = _instant_ns(recorder) // 100 + GREGORIAN_TICKS
    drawn = int.from_bytes(_entropy(recorder, 8), "big")
    sequence = drawn & 0x3FFF if clock_seq is None else clock_seq
    if node is None:
        node = (drawn >> 16) | (1 << 40)  # the bit says that it is no address of a machine
    low, middle, high = ticks & 0xFFFF_FFFF, (ticks >> 32) & 0xFFFF, (ticks >> 48) & 0x0FFF
    return UUID(fields=(low, middle, high, (sequence >> 8) & 0x3F, sequence & 0xFF, node), version=1)


def _node(_recorder: Recorder, original: Callable[[], int]) -> object:
    return recorded_call("uuid.getnode", tuple, lambda _key: original())


# ---------------------------------------------------------------------- refusals


def _refused(name: str, reason: str, inside: Callable[..., Any] | None = None) -> Answer:
    """Returns an answer that refuses. ``inside``: what answers in an asynchronous call whose calls are logged."""

    def refuse(recorder: Recorder, original: Any, *args: Any, **named: Any) -> Any:
        if inside is not None and _logged_call(recorder) is not None:
            return inside(recorder, original, *args, **named)
        raise NotIntercepted(name, reason)

    return _in_task(refuse)


def _as_it_is(_recorder: Recorder, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return original(*args, **named)


_THREAD: Final = "the log does not have which of two threads came first. Use plain calls, or map_async"
_CONNECTION: Final = "it goes past the clients of HTTP that are recorded. Put @service above the function that uses it"
_ASYNC: Final = (
    "its calls end in an order of their own. Use map_async, which records the outcome of an async function; with"
    " log_calls=True it records each request of httpx and aiohttp"
)
_WEBSOCKET: Final = "its messages come in an order of their own. Put @service above the function that uses it"
_NUMPY: Final = "numpy keeps this generator in C. Use numpy.random.default_rng(), or random.numpy() of clonos"
_CPU: Final = "a successor needs another time for the same work. Leave it out"
_PROGRAM: Final = "it starts another program. Put @service above the function that does it"

HTTPX: Final = ("httpx", "httpx2")
"""Libraries with the transports of httpx."""

_REFUSED: Final = {
    **dict.fromkeys((f"time.{name}" for name in CPU_CLOCKS), _CPU),
    **dict.fromkeys((f"numpy.random.{name}" for name in NUMPY_DRAWS), _NUMPY),
    "os.fork": _PROGRAM,
    "subprocess.Popen.__init__": _PROGRAM,
    "aiohttp.ClientSession._ws_connect": _WEBSOCKET,
    **dict.fromkeys(
        (
            *("socket.socket.connect", "socket.socket.connect_ex", "socket.socket.sendto", "socket.getaddrinfo"),
            *("socket.gethostbyname", "psycopg.connect", "psycopg.Connection.connect", "psycopg2.connect"),
            *("sqlite3.connect", "grpc.insecure_channel", "grpc.secure_channel", "pycurl.Curl"),
        ),
        _CONNECTION,
    ),
}

ANSWERS: Final[Answers] = {
    "time.time": _in_task(_seconds),
    "time.time_ns": _in_task(_nanoseconds),
    # In asynchronous calls only wall clocks are recorded: libraries measure how long they wait.
    **{name: _in_step(_seconds) for name in ("time.monotonic", "time.perf_counter")},
    **{name: _in_step(_nanoseconds) for name in ("time.monotonic_ns", "time.perf_counter_ns")},
    "time.sleep": _in_task(_sleep),
    **{f"time.{name}": _in_task(_of_now) for name in ("localtime", "gmtime", "ctime")},
    "time.asctime": _in_task(_asctime),
    "time.strftime": _in_task(_strftime),
    "datetime.datetime.now": _in_task(_datetime_now),
    "datetime.datetime.utcnow": _in_task(_datetime_utcnow),
    **{f"random.{name}": _in_strand(_drawn(name)) for name in DRAWS},
    "random.Random": _in_strand(_seeded),
    "os.urandom": _in_strand(_urandom),
    "os.getrandom": _in_strand(_urandom),
    "uuid.uuid1": _in_strand(_uuid1),
    "uuid.getnode": _in_task(_node),
    "urllib3.connectionpool.HTTPConnectionPool.urlopen": _in_task(urllib3_request),
    **{f"{library}.HTTPTransport.handle_request": _in_task(httpx_request) for library in HTTPX},
    "urllib.request.AbstractHTTPHandler.do_open": _in_task(urllib_request),
    **{name: _refused(name, reason) for name, reason in _REFUSED.items()},
    "threading.Thread.start": _refused("threading.Thread.start", _THREAD, _as_it_is),
    "aiohttp.ClientSession._request": _refused("aiohttp.ClientSession._request", _ASYNC, aiohttp_request_inside),
    **{
        name: _refused(name, _ASYNC, httpx_request_inside)
        for name in (f"{library}.AsyncHTTPTransport.handle_async_request" for library in HTTPX)
    },
}
"""Answers of a task, by the names of functions."""

"""The real HTTP client: urllib3's connection pool behind a plain request and a plain reply.

Rules:

- One deadline for the whole call, repetitions and pauses included, so that a step's wait has a limit. Looked at before
  each attempt and after each piece of the body; one wait for bytes is limited by what was left when the attempt began.
- A request is repeated when it surely was not sent, or when the caller says that it is repeatable. All repetitions
  carry the same headers, the idempotency key among them.
- No cookies, no proxies, no credentials from files: nothing but the request decides.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    MaxRetryError,
    NewConnectionError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as AnyTimeoutError

from clonos.io import wall_clock
from clonos.io.http_errors import (
    HttpBodyTooLarge,
    HttpConnectionFailed,
    HttpError,
    HttpRequestInvalid,
    HttpTimeout,
    shown_url,
)

PIECE_BYTES: Final = 64 << 10
POOLED_HOSTS_MAX: Final = 32
POOLED_CONNECTIONS_PER_HOST_MAX: Final = 8
PAUSE_S_FIRST: Final = 0.1
PAUSE_S_MAX: Final = 5.0
TRANSIENT_STATUSES: Final = frozenset({429, 502, 503, 504})
NANOSECONDS_PER_SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent. ``headers`` in the order in which they are sent."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What came back. ``url`` is where it came from, after redirects. ``body`` is decoded from gzip and the like."""

    status_code: int
    reason: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How long, how often and how much."""

    timeout_s: float  # the whole call
    connect_timeout_s: float  # one attempt to connect
    retries_max: int  # repetitions after the first attempt
    redirects_max: int
    body_bytes_max: int
    is_repeatable: bool  # the server may see the request more than once


class HttpClient:
    """A pool of connections that any thread may use."""

    def __init__(
        self,
        monotonic: Callable[[], int] = wall_clock.monotonic_ns,
        sleep: Callable[[float], None] = wall_clock.sleep_s,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._pool = urllib3.PoolManager(num_pools=POOLED_HOSTS_MAX, maxsize=POOLED_CONNECTIONS_PER_HOST_MAX)

    def send(self, request: HttpRequest, limits: HttpLimits) -> HttpReply:
        """Sends, repeats where that is allowed, and returns the last reply or raises the last ``HttpError``."""
        _check_url(request)
        deadline_ns = self._monotonic() + int(limits.timeout_s * NANOSECONDS_PER_SECOND)
        outcome, asked_pause_s = self._attempt(request, limits, deadline_ns)
        for repetition in range(limits.retries_max):
            pause_s = max(asked_pause_s, min(PAUSE_S_FIRST * 2**repetition, PAUSE_S_MAX))
            if not _is_worth_repeating(outcome, limits) or pause_s >= self._left_s(deadline_ns):
                break
            self._sleep(pause_s)
            outcome, asked_pause_s = self._attempt(request, limits, deadline_ns)
        if isinstance(outcome, HttpError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Closes the pooled connections. The client can be used again."""
        self._pool.clear()

    def _left_s(self, deadline_ns: int) -> float:
        return (deadline_ns - self._monotonic()) / NANOSECONDS_PER_SECOND

    def _attempt(
        self, request: HttpRequest, limits: HttpLimits, deadline_ns: int
    ) -> tuple[HttpReply | HttpError, float]:
        """One attempt: its reply or error, and the pause that the server asks for before another (s)."""
        left_s = self._left_s(deadline_ns)
        if left_s <= 0:
            return _timeout(request, "waiting to repeat it", limits), 0.0
        try:
            response = self._pool.request(
                request.method,
                request.url,
                body=request.body,
                headers=dict(request.headers),
                timeout=urllib3.Timeout(connect=min(limits.connect_timeout_s, left_s), read=left_s),
                retries=urllib3.Retry(
                    total=None,
                    connect=0,
                    read=False,
                    status=0,
                    other=0,
                    redirect=limits.redirects_max,
                    raise_on_redirect=False,
                    raise_on_status=False,
                    respect_retry_after_header=False,
                ),
                preload_content=False,
            )
            return self._read(response, request, limits, deadline_ns), _asked_pause_s(response)
        except (HTTPError, ValueError, UnicodeError) as failure:
            return _translated(failure, request, limits), 0.0

    def _read(
        self, response: urllib3.BaseHTTPResponse, request: HttpRequest, limits: HttpLimits, deadline_ns: int
    ) -> HttpReply | HttpError:
        """Reads the body within the limits; gives the connection back to the pool only when it was read to its end."""
        pieces: list[bytes] = []
        size_bytes = 0
        is_whole = False
        try:
            while piece := response.read1(PIECE_BYTES, decode_content=True):
                pieces.append(piece)
                size_bytes += len(piece)
                if size_bytes > limits.body_bytes_max:
                    return HttpBodyTooLarge(request.method, shown_url(request.url), limits.body_bytes_max)
                if self._left_s(deadline_ns) <= 0:
                    return _timeout(request, "reading the body", limits)
            is_whole = True
        finally:
            if is_whole:
                response.release_conn()
            else:
                response.close()
        headers = tuple((name.lower(), value) for name, value in response.headers.items())
        return HttpReply(
            response.status, response.reason or "", _final_url(request, response), headers, b"".join(pieces)
        )


def _is_worth_repeating(outcome: HttpReply | HttpError, limits: HttpLimits) -> bool:
    if isinstance(outcome, HttpReply):
        return limits.is_repeatable and outcome.status_code in TRANSIENT_STATUSES
    if isinstance(outcome, HttpConnectionFailed):
        return limits.is_repeatable or not outcome.was_sent
    return False


def _final_url(request: HttpRequest, response: urllib3.BaseHTTPResponse) -> str:
    """Where the redirects have led to."""
    url = request.url
    for step in response.retries.history if response.retries else ():
        url = urljoin(url, step.redirect_location or "")
    return url


def _asked_pause_s(response: urllib3.BaseHTTPResponse) -> float:
    """``Retry-After`` in seconds; its other form, a date, is not obeyed."""
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def _check_url(request: HttpRequest) -> None:
    try:
        parts = urlsplit(request.url)
        problem = "" if parts.scheme in ("http", "https") and parts.hostname else "it needs http(s):// and a host"
    except ValueError as malformed:
        problem = str(malformed)
    if problem:
        raise HttpRequestInvalid(request.method, shown_url(request.url), problem)


def _timeout(request: HttpRequest, phase: str, limits: HttpLimits) -> HttpTimeout:
    return HttpTimeout(request.method, shown_url(request.url), phase, limits.timeout_s)


def _translated(failure: Exception, request: HttpRequest, limits: HttpLimits) -> HttpError:
    """What the failure of an attempt means to the caller. Raises where the request itself is wrong."""
    if isinstance(failure, MaxRetryError) and failure.reason is not None:
        failure = failure.reason
    method, url = request.method, shown_url(request.url)
    if isinstance(failure, NewConnectionError):  # in some versions a kind of the next
        return HttpConnectionFailed(method, url, str(failure), False)
    if isinstance(failure, ConnectTimeoutError):
        return HttpConnectionFailed(method, url, f"no connection within {limits.connect_timeout_s:g} s", False)
    if isinstance(failure, AnyTimeoutError):
        return _timeout(request, "waiting for it", limits)
    if isinstance(failure, SSLError):
        is_refused = bool(failure.args) and isinstance(failure.args[0], ssl.SSLCertVerificationError)
        return HttpConnectionFailed(method, url, str(failure), not is_refused)
    if isinstance(failure, LocationValueError) or not isinstance(failure, HTTPError):
        raise HttpRequestInvalid(method, url, str(failure)) from failure
    return HttpConnectionFailed(method, url, str(failure), True)


_shared: HttpClient | None = None
_shared_lock = threading.Lock()


def shared_client() -> HttpClient:
    """The client of this process, made when it is first needed."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = HttpClient()
        return _shared


def close_shared_client() -> None:
    """Closes the idle connections of this process' client; the next request makes it anew."""
    global _shared
    with _shared_lock:
        client, _shared = _shared, None
    if client is not None:
        client.close()


def _forget_shared_client() -> None:
    """In a forked child: the parent's connections must not be written to by two processes."""
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_shared_client)

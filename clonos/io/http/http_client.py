"""HTTP client: urllib3's connection pool behind a plain request and a plain reply.

Rules:

- One deadline for the whole call: name lookups, connecting, sending, reading, redirects, retries and pauses included.
  The sockets enforce it (`clonos.io.http.http_sockets`), so no behaviour of a server can exceed it.
- A request is retried when it was certainly not sent, or when the caller declares it repeatable. All attempts carry the
  same headers, the idempotency key among them.
- A request is checked before anything is sent: an invalid one is the job's fault. An invalid reply is an `HttpError`.
- Redirects are followed here. Headers and bodies that the caller gave for one origin are not sent to another origin.
- No cookies, no proxies, no credentials from files: a request depends on its arguments alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, NamedTuple

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as AnyTimeoutError

from clonos.io.http.http_errors import (
    HttpBodyTooLarge,
    HttpConnectionFailed,
    HttpError,
    HttpRequestInvalid,
    HttpTimeout,
    redacted_url,
    shown_text,
)
from clonos.io.http.http_requests import Hop, first_hop, next_hop
from clonos.io.http.http_requests import HttpRequest as HttpRequest
from clonos.io.http.http_sockets import (
    NANOSECONDS_PER_SECOND,
    Budget,
    ReplyTooLong,
    current_budget,
    forget_lookups,
    pool_manager,
)
from clonos.io.system import wall_clock

PIECE_BYTES: Final = 64 << 10
FRAMING_BYTES_MAX: Final = 256 << 10
"""Bytes of a reply in addition to its body: status line, headers, interim replies, chunk sizes and trailers."""
PAUSE_S_FIRST: Final = 0.1
PAUSE_S_MAX: Final = 5.0
TRANSIENT_STATUSES: Final = frozenset({429, 502, 503, 504})
OPT_IN_ENCODINGS: Final = ("br", "zstd")
"""Encodings that urllib3 decodes where a library for them is installed; used only for a caller that accepts them."""

_NO_RETRIES: Final = urllib3.Retry(False)


class RequestWatch(NamedTuple):
    """Functions that watch the requests of a context.

    ``take``: gets the body of each reply while it comes. An empty piece begins a reply, in place of that of an earlier
    attempt. It must not raise. ``retry_pause_s``: returns how many seconds a retry waits at least.
    """

    take: Callable[[bytes], None] = lambda piece: None
    retry_pause_s: Callable[[], float] = lambda: 0.0


_NOT_WATCHED: Final = RequestWatch()
_watch: ContextVar[RequestWatch] = ContextVar("clonos_request_watch", default=_NOT_WATCHED)


@contextmanager
def requests_watched(watch: RequestWatch) -> Iterator[None]:
    """Lets ``watch`` see the requests inside the context, but for those of its own functions."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Reply to a request. ``url``: source of the reply, after redirects; ``body``: decoded from gzip and similar
    encodings."""

    status_code: int
    reason: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of a call in time, attempts and bytes."""

    timeout_s: float  # for the whole call
    connect_timeout_s: float  # for one attempt to connect
    retries_max: int  # retries after the first attempt
    redirects_max: int
    body_bytes_max: int
    is_repeatable: bool  # the server may receive the request more than once


class HttpClient:
    """Connection pool that any thread may use."""

    def __init__(
        self,
        monotonic: Callable[[], int] = wall_clock.monotonic_ns,
        sleep: Callable[[float], None] = wall_clock.sleep_s,
        ca: str | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._pools = pool_manager(ca)

    def send(self, request: HttpRequest, limits: HttpLimits) -> HttpReply:
        """Sends the request, retries it where that is allowed, and returns the last reply.

        Raises: HttpRequestInvalid before anything is sent; the ``HttpError`` of the last attempt.
        """
        first = first_hop(request)
        if limits.connect_timeout_s <= 0:
            raise HttpRequestInvalid(request.method, redacted_url(request.url), "connect_timeout= is not above 0")
        deadline_ns = self._monotonic() + int(limits.timeout_s * NANOSECONDS_PER_SECOND)
        outcome, asked_pause_s = self._attempt(first, limits, deadline_ns)
        for repetition in range(limits.retries_max):
            if not _is_worth_repeating(outcome, limits):
                break
            pause_s = max(asked_pause_s, min(PAUSE_S_FIRST * 2**repetition, PAUSE_S_MAX), _watch.get().retry_pause_s())
            if pause_s >= self._left_s(deadline_ns):
                break
            self._sleep(pause_s)
            outcome, asked_pause_s = self._attempt(first, limits, deadline_ns)
        if isinstance(outcome, HttpError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Closes the pooled connections; the client can be used again."""
        self._pools.clear()

    def _left_s(self, deadline_ns: int) -> float:
        return (deadline_ns - self._monotonic()) / NANOSECONDS_PER_SECOND

    def _attempt(self, first: Hop, limits: HttpLimits, deadline_ns: int) -> tuple[HttpReply | HttpError, float]:
        """Makes one attempt. Returns its reply or error, and the pause in seconds that the server requests before a
        retry."""
        budget = Budget(deadline_ns, self._monotonic)
        if budget.left_s <= 0:
            return _timeout(first, "waiting to repeat it", limits), 0.0
        hop, redirects_left = first, limits.redirects_max
        token = current_budget.set(budget)
        try:
            while True:
                response = self._open(hop, limits, budget)
                location = response.get_redirect_location() if redirects_left > 0 else None
                if not location:
                    return _read(response, hop, limits, budget), _retry_after_s(response)
                status_code = response.status
                _discard_body(response)
                del response  # else the traceback of an error would keep its connection open
                hop = next_hop(hop, status_code, location)
                redirects_left -= 1
        except HttpError as error:
            return error.with_traceback(None), 0.0
        except (HTTPError, TimeoutError, ReplyTooLong, ValueError) as failure:
            return _error_of(failure, hop, limits, budget), 0.0
        finally:
            current_budget.reset(token)

    def _open(self, hop: Hop, limits: HttpLimits, budget: Budget) -> urllib3.BaseHTTPResponse:
        """Sends a request and reads the head of its reply."""
        request, target = hop
        budget.bytes_left = limits.body_bytes_max + FRAMING_BYTES_MAX
        left_s = budget.wait_s()
        return self._pools.connection_from_host(target.host, target.port, target.scheme).urlopen(
            request.method,
            target.request_uri,
            body=request.body,
            headers=dict(request.headers),
            retries=_NO_RETRIES,
            redirect=False,
            assert_same_host=False,
            timeout=urllib3.Timeout(connect=min(limits.connect_timeout_s, left_s), read=left_s),
            preload_content=False,
        )


def _read(response: urllib3.BaseHTTPResponse, hop: Hop, limits: HttpLimits, budget: Budget) -> HttpReply:
    """Reads the body within the limits; returns the connection to the pool only after a complete read."""
    budget.phase = "reading the body"
    watch = _watch.get()

    def take(piece: bytes) -> None:
        with requests_watched(_NOT_WATCHED):
            watch.take(piece)

    take(b"")
    pieces: list[bytes] = []
    size_bytes = 0
    is_whole = False
    try:
        _check_encoding(response, hop)
        while piece := response.read1(PIECE_BYTES, decode_content=True):
            pieces.append(piece)
            take(piece)
            size_bytes += len(piece)
            if size_bytes > limits.body_bytes_max:
                raise ReplyTooLong
            budget.wait_s()  # decompression does not wait on the socket, so the deadline is checked here
        is_whole = True
    finally:
        if is_whole:
            response.release_conn()
        else:
            response.close()
    headers = tuple((name.lower(), value) for name, value in response.headers.items())
    return HttpReply(response.status, response.reason or "", hop.request.url, headers, b"".join(pieces))


def _check_encoding(response: urllib3.BaseHTTPResponse, hop: Hop) -> None:
    """Refuses encodings that could decompress to terabytes or for hours before the first byte can be checked.

    Raises: HttpConnectionFailed when the encoding was not accepted or is more than one.
    """
    named = response.headers.get("content-encoding", "").lower()
    if not named or response.length_remaining == 0:
        return
    encodings = [encoding.strip() for encoding in named.split(",")]
    accepted = dict(hop.request.headers).get("accept-encoding", "")
    if len(encodings) > 1 or (encodings[0] in OPT_IN_ENCODINGS and encodings[0] not in accepted):
        reason = f"its body is encoded as {shown_text(named)!r}, but the request accepts only {accepted!r}"
        raise HttpConnectionFailed(hop.request.method, redacted_url(hop.request.url), reason, True)


def _discard_body(response: urllib3.BaseHTTPResponse) -> None:
    """Closes the connection of a redirect instead of reading its body; reuses it when there is no body."""
    if response.length_remaining == 0:
        response.drain_conn()
        response.release_conn()
    else:
        response.close()


def _is_worth_repeating(outcome: HttpReply | HttpError, limits: HttpLimits) -> bool:
    if isinstance(outcome, HttpReply):
        return limits.is_repeatable and outcome.status_code in TRANSIENT_STATUSES
    if isinstance(outcome, HttpConnectionFailed):
        return limits.is_repeatable or not outcome.was_sent
    return False


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float:
    """Returns ``Retry-After`` in seconds. The date form of the header is ignored."""
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def _timeout(hop: Hop, phase: str, limits: HttpLimits) -> HttpTimeout:
    return HttpTimeout(hop.request.method, redacted_url(hop.request.url), phase, limits.timeout_s)


def _error_of(failure: Exception, hop: Hop, limits: HttpLimits, budget: Budget) -> HttpError:
    """Returns the error that a caller sees for the failure of an attempt."""
    method, url = hop.request.method, redacted_url(hop.request.url)
    if isinstance(failure, ReplyTooLong):
        return HttpBodyTooLarge(method, url, limits.body_bytes_max)
    if budget.left_s <= 0:
        return _timeout(hop, budget.phase, limits)
    if isinstance(failure, AnyTimeoutError) and not isinstance(failure, NewConnectionError):  # which is a subclass
        if not isinstance(failure, ConnectTimeoutError):
            return _timeout(hop, budget.phase, limits)
        failure = TimeoutError(f"no connection within {limits.connect_timeout_s:g} s")
    return HttpConnectionFailed(method, url, shown_text(str(failure)), budget.was_sent)


_shared: HttpClient | None = None
_shared_lock = threading.Lock()


def shared_client() -> HttpClient:
    """Returns the client of this process; creates it on first use."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = HttpClient()
        return _shared


def close_shared_client() -> None:
    """Closes the idle connections of this process' client; the next request creates a new client."""
    global _shared
    with _shared_lock:
        client, _shared = _shared, None
    if client is not None:
        client.close()


def forget_shared_client() -> None:
    """Drops the client in a forked child, because two processes must not write to one connection."""
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()
    forget_lookups()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_shared_client)

"""The real HTTP client: urllib3's connection pool behind a plain request and a plain reply.

Rules:

- One deadline for the whole call: lookups, connecting, sending, reading, redirects, repetitions and pauses included.
  The sockets hold it (`clonos.io.http.http_sockets`), so nothing that a server does gets beyond it.
- A request is repeated when it surely was not sent, or when the caller says that it is repeatable. All repetitions
  carry the same headers, the idempotency key among them.
- What the request asks for is checked before anything is sent, and is the job's fault. What a reply asks for, or is
  like, is an `HttpError`.
- Redirects are followed here. What the caller has given for one origin does not go to another.
- No cookies, no proxies, no credentials from files: nothing but the request decides.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as AnyTimeoutError

from clonos.io.http.http_errors import (
    HttpBodyTooLarge,
    HttpConnectionFailed,
    HttpError,
    HttpRequestInvalid,
    HttpTimeout,
    shown_text,
    shown_url,
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
"""Bytes of a reply beyond those that its body may have: its head, interim replies, chunk sizes and trailers."""
PAUSE_S_FIRST: Final = 0.1
PAUSE_S_MAX: Final = 5.0
TRANSIENT_STATUSES: Final = frozenset({429, 502, 503, 504})
OPT_IN_ENCODINGS: Final = ("br", "zstd")
"""Urllib3 unpacks these where a library for them is installed. Only a caller that accepts them gets them."""

_NO_RETRIES: Final = urllib3.Retry(False)


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
        self._pools = pool_manager()

    def send(self, request: HttpRequest, limits: HttpLimits) -> HttpReply:
        """Sends, repeats where that is allowed, and returns the last reply or raises the last ``HttpError``.

        Raises: HttpRequestInvalid, before anything is sent.
        """
        first = first_hop(request)
        if limits.connect_timeout_s <= 0:
            raise HttpRequestInvalid(request.method, shown_url(request.url), "connect_timeout= is not above 0")
        deadline_ns = self._monotonic() + int(limits.timeout_s * NANOSECONDS_PER_SECOND)
        outcome, asked_pause_s = self._attempt(first, limits, deadline_ns)
        for repetition in range(limits.retries_max):
            pause_s = max(asked_pause_s, min(PAUSE_S_FIRST * 2**repetition, PAUSE_S_MAX))
            if not _is_worth_repeating(outcome, limits) or pause_s >= self._left_s(deadline_ns):
                break
            self._sleep(pause_s)
            outcome, asked_pause_s = self._attempt(first, limits, deadline_ns)
        if isinstance(outcome, HttpError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Closes the pooled connections. The client can be used again."""
        self._pools.clear()

    def _left_s(self, deadline_ns: int) -> float:
        return (deadline_ns - self._monotonic()) / NANOSECONDS_PER_SECOND

    def _attempt(self, first: Hop, limits: HttpLimits, deadline_ns: int) -> tuple[HttpReply | HttpError, float]:
        """One attempt: its reply or error, and the pause that the server asks for before another (s)."""
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
                    return _read(response, hop, limits, budget), _asked_pause_s(response)
                status_code = response.status
                _leave(response)
                del response  # the frames of an error would keep its connection open
                hop = next_hop(hop, status_code, location)
                redirects_left -= 1
        except HttpError as error:
            return error.with_traceback(None), 0.0
        except (HTTPError, TimeoutError, ReplyTooLong, ValueError) as failure:
            return _translated(failure, hop, limits, budget), 0.0
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
    """Reads the body within the limits; gives the connection back to the pool only when it was read to its end."""
    budget.phase = "reading the body"
    pieces: list[bytes] = []
    size_bytes = 0
    is_whole = False
    try:
        _check_encoding(response, hop)
        while piece := response.read1(PIECE_BYTES, decode_content=True):
            pieces.append(piece)
            size_bytes += len(piece)
            if size_bytes > limits.body_bytes_max:
                raise ReplyTooLong
            budget.wait_s()  # what is unpacked waits for nobody
        is_whole = True
    finally:
        if is_whole:
            response.release_conn()
        else:
            response.close()
    headers = tuple((name.lower(), value) for name, value in response.headers.items())
    return HttpReply(response.status, response.reason or "", hop.request.url, headers, b"".join(pieces))


def _check_encoding(response: urllib3.BaseHTTPResponse, hop: Hop) -> None:
    """Refuses what may unpack to terabytes, or at the cost of hours, without a byte of it being seen.

    Raises: HttpConnectionFailed.
    """
    named = response.headers.get("content-encoding", "").lower()
    if not named or response.length_remaining == 0:
        return
    encodings = [encoding.strip() for encoding in named.split(",")]
    accepted = dict(hop.request.headers).get("accept-encoding", "")
    if len(encodings) > 1 or (encodings[0] in OPT_IN_ENCODINGS and encodings[0] not in accepted):
        reason = f"its body is encoded as {shown_text(named)!r}, and {accepted!r} was asked for"
        raise HttpConnectionFailed(hop.request.method, shown_url(hop.request.url), reason, True)


def _leave(response: urllib3.BaseHTTPResponse) -> None:
    """Does not wait for the body of a redirect: where there is one, the connection is closed."""
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


def _asked_pause_s(response: urllib3.BaseHTTPResponse) -> float:
    """``Retry-After`` in seconds; its other form, a date, is not obeyed."""
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def _timeout(hop: Hop, phase: str, limits: HttpLimits) -> HttpTimeout:
    return HttpTimeout(hop.request.method, shown_url(hop.request.url), phase, limits.timeout_s)


def _translated(failure: Exception, hop: Hop, limits: HttpLimits, budget: Budget) -> HttpError:
    """What the failure of an attempt means to the caller."""
    method, url = hop.request.method, shown_url(hop.request.url)
    if isinstance(failure, ReplyTooLong):
        return HttpBodyTooLarge(method, url, limits.body_bytes_max)
    if budget.left_s <= 0:
        return _timeout(hop, budget.phase, limits)
    if isinstance(failure, AnyTimeoutError) and not isinstance(failure, NewConnectionError):  # a kind of it
        if not isinstance(failure, ConnectTimeoutError):
            return _timeout(hop, budget.phase, limits)
        failure = TimeoutError(f"no connection within {limits.connect_timeout_s:g} s")
    return HttpConnectionFailed(method, url, shown_text(str(failure)), budget.was_sent)


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


def forget_shared_client() -> None:
    """In a forked child: the parent's connections must not be written to by two processes."""
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()
    forget_lookups()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_shared_client)

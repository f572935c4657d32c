"""Pace of requests with wrong tokens.

After ``FAILURES_MAX`` wrong tokens from one address within a minute, requests of that address are compared one by one,
``INTERVAL_S`` apart, and those that would wait longer than ``WAIT_S_MAX`` are refused. So tokens cannot be guessed
quickly, and a client with an old token locks nobody out who shares its address. A request without a token is no guess.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clonos.server.job_api.guard import HEADERS

FAILURES_MAX: Final = 20
WINDOW_S: Final = 60.0
INTERVAL_S: Final = 0.1
WAIT_S_MAX: Final = 2.0
ADDRESSES_MAX: Final = 10_000

_REFUSAL: Final = (
    b'{"error":{"code":"too_many_failed_logins","message":"Too many wrong tokens came from this address."}}'
)


@dataclass(slots=True)
class _Address:
    failures_s: deque[float] = field(default_factory=deque)  # times of the latest wrong tokens
    free_s: float = 0.0  # time of the next comparison


class FailedLogins:
    """Wrong tokens by address. ``now_s``: the clock."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._addresses: OrderedDict[str, _Address] = OrderedDict()  # those that failed latest at the end

    def failed(self, address: str) -> None:
        """Notes a wrong token."""
        found = self._addresses.setdefault(address, _Address())
        self._addresses.move_to_end(address)
        found.failures_s.append(self._now_s())
        while len(found.failures_s) > FAILURES_MAX:
            found.failures_s.popleft()
        while len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)

    def wait_s(self, address: str) -> float | None:
        """Returns the seconds until a request of an address may be compared, which takes its turn; None to refuse
        it."""
        found = self._addresses.get(address)
        now_s = self._now_s()
        if found is None:
            return 0.0
        while found.failures_s and found.failures_s[0] <= now_s - WINDOW_S:
            found.failures_s.popleft()
        if len(found.failures_s) < FAILURES_MAX:
            return 0.0
        turn_s = max(now_s, found.free_s)
        if turn_s - now_s > WAIT_S_MAX:
            return None
        found.free_s = turn_s + INTERVAL_S
        return turn_s - now_s


class LoginPace:
    """ASGI middleware in front of a guard that answers 401 to a wrong token."""

    def __init__(
        self, app: ASGIApp, logins: FailedLogins, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._app, self._logins, self._sleep = app, logins, sleep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, when it is its turn."""
        if scope["type"] != "http" or not any(name.lower() == b"authorization" for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        wait_s = self._logins.wait_s(address)
        if wait_s is None:
            await _refuse(send)
            return
        if wait_s > 0:
            await self._sleep(wait_s)

        async def send_noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                self._logins.failed(address)
            await send(message)

        await self._app(scope, receive, send_noting)


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_REFUSAL)).encode()),
        (b"retry-after", str(math.ceil(WAIT_S_MAX)).encode()),
        *HEADERS,
    ]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSAL})

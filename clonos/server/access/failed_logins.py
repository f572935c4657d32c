"""Pace of answers to wrong tokens.

A token is compared at once, so a right one is never held up. After ``FAILURES_MAX`` wrong tokens from one address
within a minute, the answers to further wrong ones come one by one, ``INTERVAL_S`` apart. At most ``DELAYED_MAX`` wait
at a time, so that they hold few connections. What would wait longer than ``WAIT_S_MAX``, or be one more, gets 429. A
request without a token is no guess.
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

from clonos.io.net.connection_admission import site_of
from clonos.server.job_api.guard import HEADERS

FAILURES_MAX: Final = 20
WINDOW_S: Final = 60.0
INTERVAL_S: Final = 0.1
WAIT_S_MAX: Final = 2.0
DELAYED_MAX: Final = 50
ADDRESSES_MAX: Final = 10_000

_REFUSAL: Final = (
    b'{"error":{"code":"too_many_failed_logins","message":"Too many wrong tokens came from this address."}}'
)


@dataclass(slots=True)
class _Address:
    failures_s: deque[float] = field(default_factory=deque)  # times of the latest wrong tokens
    free_s: float = 0.0  # time of the next answer


class FailedLogins:
    """Wrong tokens by address. ``now_s``: the clock."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._addresses: OrderedDict[str, _Address] = OrderedDict()  # those that failed latest at the end

    def failed(self, address: str) -> float | None:
        """Notes a wrong token. Returns the seconds until it may be answered, which takes its turn; None to refuse
        further ones."""
        found = self._addresses.setdefault(site_of(address), _Address())
        self._addresses.move_to_end(site_of(address))
        while len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)
        now_s = self._now_s()
        while found.failures_s and found.failures_s[0] <= now_s - WINDOW_S:
            found.failures_s.popleft()
        is_quick = len(found.failures_s) >= FAILURES_MAX
        found.failures_s.append(now_s)
        if not is_quick:
            return 0.0
        found.failures_s.popleft()
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
        self.delayed_max = DELAYED_MAX
        self._delayed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and holds up the answer to a wrong token."""
        if scope["type"] != "http" or not any(name.lower() == b"authorization" for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        is_refused = False

        async def send_paced(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and message["status"] == 401:
                is_refused = not await self._wait(address)
                if is_refused:
                    await _refuse(send)
            if not is_refused:
                await send(message)

        await self._app(scope, receive, send_paced)

    async def _wait(self, address: str) -> bool:
        """Waits until a wrong token may be answered. Returns whether it may."""
        wait_s = self._logins.failed(address)
        if wait_s is None or (wait_s > 0 and self._delayed >= self.delayed_max):
            return False
        if wait_s > 0:
            self._delayed += 1
            try:
                await self._sleep(wait_s)
            finally:
                self._delayed -= 1
        return True


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_REFUSAL)).encode()),
        (b"retry-after", str(math.ceil(WAIT_S_MAX)).encode()),
        *HEADERS,
    ]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSAL})

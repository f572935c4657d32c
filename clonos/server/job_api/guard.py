"""Guard in front of an API: host, token and role, size of the body, and the headers of every answer.

It is an ASGI middleware without buffers, so that event streams pass. A request without a valid token learns nothing of
the API, not even which paths it has.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

API_PREFIX: Final = "/api/"
METRICS_PATH: Final = "/metrics"
BODY_BYTES_MAX: Final = 64 << 10
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Role(StrEnum):
    """Rights that a token gives. The right to write includes the right to read."""

    READ = "read"
    WRITE = "write"


class BodyTooLarge(Exception):
    """The body of a request is larger than allowed."""


def role_by_token(tokens: Mapping[str, Role]) -> Callable[[str], Role | None]:
    """Returns a function that gives the role of a token, in a time that does not depend on the token's letters."""

    def role_of(token: str) -> Role | None:
        found = [role for known, role in tokens.items() if hmac.compare_digest(known.encode(), token.encode())]
        return found[0] if found else None

    return role_of


class RequestGuard:
    """Guard of ``app``.

    ``role_of``: returns the role of a token; None guards nothing by tokens, as on a Unix socket. ``hosts``: names by
    which a browser may call the server; None allows all. ``body_bytes_max``: limit of the body of a path.
    ``open_paths``: paths under ``prefixes`` that need no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        role_of: Callable[[str], Role | None] | None,
        hosts: Iterable[str] | None = LOOPBACK_HOSTS,
        body_bytes_max: Callable[[str], int] = lambda _path: BODY_BYTES_MAX,
        prefixes: tuple[str, ...] = (API_PREFIX, METRICS_PATH),
    ) -> None:
        self._app, self._role_of = app, role_of
        self._hosts = None if hosts is None else frozenset(hosts)
        self._body_bytes_max, self._prefixes = body_bytes_max, prefixes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request itself, or passes it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer(send_with_headers, *refusal)
            return
        bytes_max = self._body_bytes_max(scope["path"])
        received, is_refused = 0, False

        async def receive_limited() -> Message:
            nonlocal received, is_refused
            message = await receive()
            received += len(message.get("body", b""))
            if received > bytes_max:
                if not is_refused:
                    is_refused = True
                    await _answer(send_with_headers, 413, "body_too_large", _too_large(bytes_max))
                raise BodyTooLarge
            return message

        async def send_unless_refused(message: Message) -> None:
            if not is_refused:
                await send_with_headers(message)

        try:
            await self._app(scope, receive_limited, send_unless_refused)
        except BodyTooLarge:
            pass

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Returns status, code and message for a request that is not passed on."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and _without_port(host) not in self._hosts:
            return 400, "host_not_allowed", "The request names another host: open the address that the server printed."
        if not scope["path"].startswith(self._prefixes):
            return None
        if self._role_of is not None:
            scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            role = self._role_of(token.strip()) if scheme.lower() == "bearer" else None
            if role is None:
                return 401, "unauthorized", "The request needs a valid token: Authorization: Bearer TOKEN."
            if role is not Role.WRITE and scope["method"] not in READING:
                return 403, "forbidden", "This token may only read."
            scope.setdefault("state", {})["role"] = role
        declared = headers.get(b"content-length", b"0")
        bytes_max = self._body_bytes_max(scope["path"])
        if declared.isdigit() and int(declared[:20]) > bytes_max:
            return 413, "body_too_large", _too_large(bytes_max)
        return None


def _too_large(bytes_max: int) -> str:
    return f"The body of the request has more than {bytes_max} bytes."


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


async def _answer(send: Callable[[Any], Any], status: int, code: str, message: str) -> None:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""Forwarding of requests to the driver of a job, over the Unix socket in the job's folder, on the event loop.

Nothing here reads files of certificates: a client that might speak TLS would load them for each request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Final

import httpx

from clonos.server.job_api.guard import METRICS_PATH
from clonos.server.supervision.driver_link import API_PREFIX, REPLY_BYTES_MAX, TIMEOUT_S, DriverSilent
from clonos.server.supervision.job_folder import JobFolder

DRIVER_URL: Final = "http://driver"
BASE_URL: Final = f"{DRIVER_URL}{API_PREFIX}"
WITHOUT_TLS: Final = SSLContext(PROTOCOL_TLS_CLIENT)
"""Context that a client of Unix sockets never uses, and that trusts nobody."""
STREAM_SILENCE_S: Final = 40.0
"""Seconds after which a silent event stream counts as broken: its heartbeat comes every 15 s."""


@asynccontextmanager
async def _client(folder: JobFolder, timeout: httpx.Timeout | float) -> AsyncIterator[httpx.AsyncClient]:
    with folder.socket_path() as path:
        async with (
            httpx.AsyncHTTPTransport(uds=path, verify=WITHOUT_TLS) as transport,
            httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False) as client,
        ):
            yield client


async def forward(
    folder: JobFolder,
    method: str,
    path: str,
    query: str = "",
    body: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[int, bytes]:
    """Sends a request to a driver and returns the status and the body of its answer.

    ``path``: after /api/v1. ``timeout_s``: seconds without a byte of the answer.

    Raises: DriverSilent.
    """
    return await _ask(folder, method, f"{BASE_URL}{path}" + (f"?{query}" if query else ""), body, timeout_s)


async def metrics_of(folder: JobFolder) -> str:
    """Returns the metrics of a driver as Prometheus reads them; an empty text if the driver does not answer."""
    try:
        status, body = await _ask(folder, "GET", f"{DRIVER_URL}{METRICS_PATH}")
    except DriverSilent:
        return ""
    return body.decode("utf-8", "replace") if status == 200 else ""


async def _ask(
    folder: JobFolder, method: str, url: str, body: bytes | None = None, timeout_s: float = TIMEOUT_S
) -> tuple[int, bytes]:
    """Raises: DriverSilent."""
    headers = {} if body is None else {"content-type": "application/json"}
    try:
        async with (
            _client(folder, httpx.Timeout(TIMEOUT_S, read=timeout_s)) as client,
            client.stream(method, url, content=body, headers=headers) as reply,
        ):
            pieces, size = [], 0
            async for piece in reply.aiter_bytes():
                size += len(piece)
                if size > REPLY_BYTES_MAX:
                    raise DriverSilent(f"its answer has more than {REPLY_BYTES_MAX:,} bytes")
                pieces.append(piece)
            return reply.status_code, b"".join(pieces)
    except (httpx.HTTPError, OSError) as error:
        is_gone = isinstance(error, (httpx.ConnectError, FileNotFoundError))
        raise DriverSilent(str(error) or type(error).__name__, is_gone) from None


async def forward_events(folder: JobFolder, path: str, query: str = "") -> AsyncIterator[bytes]:
    """Yields the server-sent events of a driver, one by one, until its stream ends or breaks."""
    timeout = httpx.Timeout(TIMEOUT_S, read=STREAM_SILENCE_S)
    url = f"{BASE_URL}{path}" + (f"?{query}" if query else "")
    try:
        async with _client(folder, timeout) as client, client.stream("GET", url) as reply:
            if reply.status_code != 200:
                return
            rest = b""
            async for piece in reply.aiter_bytes():
                *events, rest = (rest + piece).split(b"\n\n")
                if len(rest) > REPLY_BYTES_MAX:
                    return
                for event in events:
                    yield event + b"\n\n"
    except (httpx.HTTPError, OSError):
        return

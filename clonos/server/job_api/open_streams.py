"""Open event streams, and their limit for each token: they last, so the holder of one could take all connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from fastapi.responses import StreamingResponse
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from clonos.server.job_api.job_source import RequestDenied

STREAMS_MAX: Final = 40
"""Streams of one token. The two tokens of a server have less than the connections of one address."""


class OpenStreams:
    """Open streams by the role of their token; those of a Unix socket have no role."""

    def __init__(self, streams_max: int = STREAMS_MAX) -> None:
        self._streams_max = streams_max
        self._count_by_role: Counter[str] = Counter()

    def answer(self, request: Request, events: AsyncIterator[bytes]) -> StreamingResponse:
        """Returns a stream of events as an answer, which counts until it has been sent. Raises: RequestDenied."""
        role = str(request.scope.get("state", {}).get("role", ""))
        if self._count_by_role[role] >= self._streams_max:
            message = f"{self._streams_max} event streams are open with this token, which may have no more: close one."
            raise RequestDenied("too_many_streams", message, 429)
        self._count_by_role[role] += 1
        return _CountedStream(events, self._count_by_role, role)


class _CountedStream(StreamingResponse):
    """Stream that counts until it ends, however it does."""

    def __init__(self, events: AsyncIterator[bytes], count_by_role: Counter[str], role: str) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._count_by_role, self._role = count_by_role, role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._count_by_role[self._role] -= 1

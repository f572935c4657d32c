"""Server-sent events of one job: status each second, milestones, alarms and log lines at once, and its end.

A reader has a position of its own. Something new wakes it up, and it takes all that is new since its position, so a
slow reader gets fewer events and holds up nobody. Streams last, so the holder of one token could take all connections:
each token has a limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from clonos.server.job_api.documents import LogDocument
from clonos.server.job_api.job_source import RequestDenied
from clonos.server.job_api.job_watch import EventsSeen, JobWatch

HEARTBEAT_S: Final = 15.0
GATHER_S: Final = 0.03
"""Pause after something new, in which more of it may come."""

RECOVERIES_PER_EVENT: Final = 20
LOG_LINES_PER_EVENT: Final = 200

STREAMS_MAX: Final = 40
"""Streams of one token. The two tokens of a server have less than the connections of one address."""


async def events(watch: JobWatch, first_log_line: int) -> AsyncIterator[bytes]:
    """Yields the events of a job until it has ended or the watch is closed."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    position = EventsSeen(log=first_log_line)
    position.alarm = max((alarm.number for alarm in watch.alarms_after(0)), default=0)

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(news.set)
        except RuntimeError:  # the loop has ended, and with it this reader
            pass

    watch.add_waker(wake)
    try:
        yield b"retry: 1000\n\n"
        has_ended = False
        while not has_ended:
            for text in await asyncio.to_thread(_news, watch, position):
                has_ended = has_ended or text.startswith(b"event: ended")
                yield text
            if has_ended or watch.is_closed:
                return
            try:
                await asyncio.wait_for(news.wait(), HEARTBEAT_S)
            except TimeoutError:
                yield b": still here\n\n"
            news.clear()
            await asyncio.sleep(GATHER_S)
    finally:
        watch.remove_waker(wake)


def _news(watch: JobWatch, position: EventsSeen) -> list[bytes]:
    """Returns the events after a position, and moves it."""
    found = []
    is_closed = watch.is_closed  # before the looks, so that nothing before the end is missed
    if watch.recovery_events != position.recovery:
        position.recovery = watch.recovery_events
        found += [_event("recovery", recovery) for recovery in reversed(watch.recoveries()[:RECOVERIES_PER_EVENT])]
    for alarm in watch.alarms_after(position.alarm):
        position.alarm = alarm.number
        found.append(_event("alarm", alarm))
    logs = watch.logs.after(position.log, LOG_LINES_PER_EVENT)
    if logs.lines:
        position.log = logs.next
        found.append(_event("log", LogDocument(lines=logs.lines, next=logs.next)))
    has_ended = watch.has_ended
    if watch.samples != position.sample or has_ended or is_closed:
        position.sample = watch.samples
        status, is_last = watch.latest()
        found.append(f"event: status\ndata: {status}\n\n".encode())
        if is_last:
            found.append(_event("ended", watch.summary_now()))
    return found


def _event(name: str, document: BaseModel) -> bytes:
    return f"event: {name}\ndata: {document.model_dump_json()}\n\n".encode()


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

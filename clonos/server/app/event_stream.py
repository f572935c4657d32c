"""Server-sent events of jobs: those of the driver while it lives, and the status from the register in between.

A job has one stream from its driver, however many clients read it, and a client keeps one stream over restarts of the
driver. Each client has its own position: it takes all that is new since then, of the status only the latest, so a slow
one holds up nobody. Lines of the log have numbers, so each client gets those that it lacks from the driver's log.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from clonos.core.model.errors import EnvironmentFault
from clonos.job.last_lines import ANSWER_LINES_MAX
from clonos.server.app.forwarding import forward, forward_events
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.job_api.job_source import RequestDenied

logger = logging.getLogger("clonos.server")

STATUS_EVERY_S: Final = 1.0
EVENTS_MAX: Final = 500
"""Events that are remembered for clients that are slower."""
RECOVERIES_MAX: Final = 20
"""Recoveries that a new client is sent."""


@dataclass(frozen=True, slots=True)
class _Event:
    """One event in the order of all. ``lines``: of a log event. ``attempt``: number of the driver it comes from."""

    number: int
    attempt: int
    data: bytes
    lines: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Reader:
    """Position of one client. ``line``: last line of the log that it has, of the driver ``attempt`` (0: of the first
    to come); None until it gets one."""

    event: int
    attempt: int
    line: int | None
    status: int = 0


class JobEvents:
    """Events of jobs. Only the thread of the event loop uses it."""

    def __init__(self, known: KnownJobs) -> None:
        self._known = known
        self._feeds: dict[str, _Feed] = {}

    async def of(self, job_id: str, after: int | None) -> AsyncIterator[bytes]:
        """Yields the events of a job until it has ended for good. ``after``: last line of the log that is known."""
        feed = self._feeds.get(job_id)
        if feed is None or feed.has_ended:
            feed = self._feeds[job_id] = _Feed(self._known, job_id)
        feed.readers += 1
        try:
            yield b"retry: 1000\n\n"
            async for data in feed.read(after):
                yield data
        finally:
            feed.readers -= 1
            if not feed.readers:
                feed.stop()
                if self._feeds.get(job_id) is feed:
                    del self._feeds[job_id]


class _Feed:
    """The stream of one job, for all its readers. It begins at once, and ends with the job or by ``stop``."""

    def __init__(self, known: KnownJobs, job_id: str) -> None:
        self.readers = 0
        self.has_ended = False
        self._known, self._job_id = known, job_id
        self._events: deque[_Event] = deque(maxlen=EVENTS_MAX)
        self._recoveries: dict[int, bytes] = {}
        self._number = self._attempt = self._line = 0
        self._status, self._status_number = b"", 0
        self._ended = b""
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Ends the stream from the driver."""
        self._task.cancel()

    # ------------------------------------------------------------------ readers

    async def read(self, after: int | None) -> AsyncIterator[bytes]:
        """Yields what one client has not seen."""
        reader = _Reader(self._number, self._attempt, after)
        for recovery in tuple(self._recoveries.values()):
            yield recovery
        if after is not None:
            async for data in self._missing(reader):
                yield data
        while True:
            changed = self._changed
            for event in [each for each in tuple(self._events) if each.number > reader.event]:
                async for data in self._of_event(reader, event):
                    yield data
            if self._status_number != reader.status:
                reader.status = self._status_number
                yield self._status
            if self.has_ended:
                if self._ended:
                    yield self._ended
                return
            await changed.wait()

    async def _of_event(self, reader: _Reader, event: _Event) -> AsyncIterator[bytes]:
        reader.event = event.number
        if not event.lines:
            yield event.data
            return
        if reader.attempt not in (0, event.attempt):  # another driver, whose lines have numbers of their own
            reader.line = 0
        reader.attempt = event.attempt
        first, last = int(event.lines[0]["number"]), int(event.lines[-1]["number"])
        if reader.line is not None and first > reader.line + 1:
            async for data in self._missing(reader):
                yield data
        if reader.line is not None and last <= reader.line:
            return
        lines = [each for each in event.lines if reader.line is None or each["number"] > reader.line]
        reader.line = last
        yield event.data if len(lines) == len(event.lines) else _event("log", {"lines": lines, "next": last})

    async def _missing(self, reader: _Reader) -> AsyncIterator[bytes]:
        """Yields the lines that the driver's log has after that of a reader."""
        driver_job = self._known.driver_job(self._job_id)
        folder = self._known.supervisor.folder_of(self._job_id)
        while driver_job is not None:
            try:
                query = f"after={reader.line or 0}&limit={ANSWER_LINES_MAX}"
                status, body = await forward(folder, "GET", f"/jobs/{driver_job}/logs", query)
            except EnvironmentFault:  # it has just ended
                return
            found = json.loads(body) if status == 200 else {"lines": []}
            if not found["lines"]:
                return
            reader.line = int(found["next"])
            yield _event("log", found)

    # ------------------------------------------------------------------ the stream

    async def _run(self) -> None:
        try:
            while not await self._follow():
                await asyncio.sleep(STATUS_EVERY_S)
        except RequestDenied:  # the job has been removed
            pass
        finally:
            self.has_ended = True
            self._wake()

    async def _follow(self) -> bool:
        """Follows the driver that lives, if there is one, and then the register. Returns whether the job has ended."""
        with suppress(EnvironmentFault):  # of the register: the next time is soon
            driver_job = self._known.driver_job(self._job_id)
            if driver_job is not None:
                record = await asyncio.to_thread(self._known.record, self._job_id)
                await self._follow_driver(driver_job, record.attempt)
            record = await asyncio.to_thread(self._known.record, self._job_id)
            status = await asyncio.to_thread(self._known.last_known, record, "status")
            self._publish_status(status)
            if record.status.is_final:
                self._ended = _event("ended", status["job"])
                return True
        return False

    async def _follow_driver(self, driver_job: str, attempt: int) -> None:
        query = f"after={self._line}" if self._line else ""
        if attempt != self._attempt:  # a new driver, whose lines count from its first one
            query = "after=0" if self._attempt else ""
            self._attempt, self._line = attempt, 0
        folder = self._known.supervisor.folder_of(self._job_id)
        async for event in forward_events(folder, f"/jobs/{driver_job}/events", query):
            head, _, data = event.partition(b"\ndata: ")
            match head.removeprefix(b"event: "):
                case b"ended":  # of this driver; the register knows whether the job has ended
                    return
                case b"status":
                    record = await asyncio.to_thread(self._known.record, self._job_id)
                    self._publish_status(self._known.overlaid(record, "status", json.loads(data)))
                case b"log":
                    self._publish(event, json.loads(data)["lines"])
                case b"recovery":
                    self._remember(event, int(json.loads(data)["number"]))
                case b"alarm":
                    self._publish(event)

    def _remember(self, event: bytes, number: int) -> None:
        self._recoveries.pop(number, None)
        self._recoveries[number] = event
        if len(self._recoveries) > RECOVERIES_MAX:
            del self._recoveries[next(iter(self._recoveries))]
        self._publish(event)

    def _publish(self, data: bytes, lines: list[dict[str, Any]] | None = None) -> None:
        self._number += 1
        if lines:
            self._line = int(lines[-1]["number"])
        self._events.append(_Event(self._number, self._attempt, data, lines or []))
        self._wake()

    def _publish_status(self, status: dict[str, Any]) -> None:
        self._status = _event("status", status)
        self._status_number += 1
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _event(name: str, document: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()

"""Server-sent events of a job: those of its driver while it lives, and the status from the register in between.

A client keeps one stream over restarts of the driver.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from clonos.server.app.forwarding import forward_events
from clonos.server.app.known_jobs import KnownJobs

STATUS_EVERY_S: Final = 1.0


async def job_events(known: KnownJobs, job_id: str, query: str) -> AsyncIterator[bytes]:
    """Yields the events of a job until it has ended for good."""
    folder = known.supervisor.folder_of(job_id)
    yield b"retry: 1000\n\n"
    while True:
        driver_job = known.driver_job(job_id)
        if driver_job is not None:
            async for event in forward_events(folder, f"/jobs/{driver_job}/events", query):
                if event.startswith(b"event: ended"):
                    break  # of this driver; the register knows whether the job has ended
                yield await _overlaid(known, job_id, event)
            query = ""
        record = await asyncio.to_thread(known.record, job_id)
        status = await asyncio.to_thread(known.last_known, record, "status")
        yield _event("status", status)
        if record.status.is_final:
            yield _event("ended", status["job"])
            return
        await asyncio.sleep(STATUS_EVERY_S)


async def _overlaid(known: KnownJobs, job_id: str, event: bytes) -> bytes:
    """Returns an event of a driver with the summary that the server has."""
    head, _, data = event.partition(b"\ndata: ")
    if head != b"event: status":
        return event
    record = await asyncio.to_thread(known.record, job_id)
    return _event("status", known.overlaid(record, "status", json.loads(data)))


def _event(name: str, document: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()

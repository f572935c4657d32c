"""Events of a job for many clients: one stream from the driver, and each line of the log once for each client."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from clonos.io.net.connection_admission import AdmissionLimits
from clonos.job.continuing.restart_strategy import NoRestart
from clonos.job.job_status import JobStatus
from clonos.server.app.event_stream import JobEvents
from clonos.server.app.forwarding import forward
from clonos.server.app.known_jobs import KnownJobs
from clonos.server.job_api.admitted_server import AdmittedServer
from clonos.server.job_api.events import OpenStreams
from clonos.server.job_api.guard import Role
from clonos.server.job_api.job_source import RequestDenied
from clonos.server.job_api.server_thread import listen_unix
from clonos.server.register.databases import open_register
from clonos.server.register.job_record import JobRecord
from clonos.server.register.transitions import JobEvent
from clonos.server.supervision.driver_link import DriverLink, DriverSilent
from clonos.server.supervision.job_folder import SOCKET_NAME
from clonos.server.supervision.spare_driver import SpareDriver
from clonos.server.supervision.supervisor import Supervisor

pytestmark = pytest.mark.slow

LINES = 10


class Driver:
    """What a server sees of a driver: its API on the socket of the job's folder, in a thread."""

    def __init__(self, path: Path) -> None:
        self.lines = LINES
        self.opened = self.open = 0
        self._news: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = threading.Semaphore(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        app = FastAPI()
        app.get("/api/v1/jobs")(self._jobs)
        app.get("/api/v1/jobs/words-0/logs")(self._logs)
        app.get("/api/v1/jobs/words-0/events")(self._events)
        self._server = AdmittedServer(app, AdmissionLimits(100, 100))
        self._thread = threading.Thread(target=self._server.run, args=(listen_unix(path),))
        self._thread.start()

    async def _jobs(self) -> dict[str, Any]:
        return {"jobs": [{"id": "words-0", "status": "RUNNING"}]}

    async def _logs(self, after: int, limit: int) -> dict[str, Any]:
        return _lines(*range(after + 1, min(self.lines, after + limit, after + 3) + 1))  # at most three at a time

    async def _events(self, request: Request) -> StreamingResponse:
        self._loop = asyncio.get_running_loop()
        self.opened += 1
        self.open += 1
        return StreamingResponse(self._sent(), media_type="text/event-stream")

    async def _sent(self) -> AsyncIterator[bytes]:
        try:
            yield b'event: status\ndata: {"tasks": []}\n\n'
            while (news := await self._news.get()) is not None:
                yield news
        finally:
            self.open -= 1
            self._closed.release()

    def log(self, *numbers: int) -> None:
        """Sends lines of the log."""
        self.lines = max(self.lines, *numbers)
        self.send(f"event: log\ndata: {json.dumps(_lines(*numbers))}\n\n".encode())

    def send(self, event: bytes | None) -> None:
        """Sends an event; None ends the stream."""
        assert self._loop is not None, "there is a stream"
        self._loop.call_soon_threadsafe(self._news.put_nowait, event)

    def wait_until_left(self) -> None:
        """Waits until a stream has been left."""
        assert self._closed.acquire(timeout=30)

    def close(self) -> None:
        """Ends it."""
        self._server.end()
        self._thread.join()


def _lines(*numbers: int) -> dict[str, Any]:
    return {"lines": [{"number": number} for number in numbers], "next": numbers[-1] if numbers else 0}


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KnownJobs]:
    """Jobs of a server, of which one runs."""
    (tmp_path / "jobs").mkdir()
    register = open_register(None, tmp_path)
    register.add(JobRecord("words-1", "words", JobStatus.RUNNING, 1_000, "job.py", attempt=1))
    supervisor = Supervisor(register, tmp_path / "jobs", NoRestart(), SpareDriver("1"))
    supervisor.folder_of("words-1").create()
    monkeypatch.setattr(supervisor, "summary", lambda _: {"id": "words-0", "status": "RUNNING"})
    yield KnownJobs(register, supervisor)
    supervisor.close()
    register.close()


@pytest.fixture
def driver(known: KnownJobs) -> Iterator[Driver]:
    """The driver of the job."""
    made = Driver(known.supervisor.folder_of("words-1").path / SOCKET_NAME)
    yield made
    made.close()


async def _next(stream: AsyncIterator[bytes], name: str) -> dict[str, Any]:
    """The next event of a name."""
    async for event in stream:
        if event.startswith(f"event: {name}\n".encode()):
            found: dict[str, Any] = json.loads(event.partition(b"\ndata: ")[2])
            return found
    raise AssertionError("the stream has ended")


async def _numbers(stream: AsyncIterator[bytes], last: int) -> list[int]:
    """The numbers of the next lines, until a last one."""
    found: list[int] = []
    while not found or found[-1] < last:
        found += [line["number"] for line in (await _next(stream, "log"))["lines"]]
    return found


def test_a_job_has_one_stream_from_its_driver_for_all_readers(known: KnownJobs, driver: Driver) -> None:
    async def play() -> None:
        events = JobEvents(known)
        streams = [events.of("words-1", None) for _ in range(50)]
        statuses = await asyncio.gather(*(_next(stream, "status") for stream in streams))
        assert {status["job"]["id"] for status in statuses} == {"words-1"}
        driver.send(b'event: alarm\ndata: {"number": 1}\n\n')
        alarms = await asyncio.gather(*(_next(stream, "alarm") for stream in streams))
        assert (driver.opened, alarms) == (1, [{"number": 1}] * 50)
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(driver.wait_until_left)
        assert driver.open == 0
        again = events.of("words-1", None)
        await _next(again, "status")
        assert driver.opened == 2
        await again.aclose()  # type: ignore[attr-defined]

    asyncio.run(play())


def test_each_reader_gets_the_lines_after_its_own_position_once(known: KnownJobs, driver: Driver) -> None:
    async def play() -> None:
        events = JobEvents(known)
        streams = [events.of("words-1", after) for after in (0, 7, 12, None)]
        assert [await _numbers(stream, LINES) for stream in streams[:2]] == [list(range(1, 11)), list(range(8, 11))]
        for stream in streams:
            await _next(stream, "status")
        driver.log(11)
        driver.log(12, 13)
        assert [await _numbers(stream, 13) for stream in streams] == [[11, 12, 13], [11, 12, 13], [13], [11, 12, 13]]
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(play())


def test_a_reader_that_has_missed_lines_reads_them_from_the_log(known: KnownJobs, driver: Driver) -> None:
    async def play() -> None:
        stream = JobEvents(known).of("words-1", 10)
        await _next(stream, "status")
        driver.log(15)
        assert await _numbers(stream, 15) == [11, 12, 13, 14, 15]
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(play())


def test_a_reader_gets_the_lines_of_the_next_driver_from_its_first_one(known: KnownJobs, driver: Driver) -> None:
    async def play() -> None:
        stream = JobEvents(known).of("words-1", 10)
        await _next(stream, "status")
        driver.log(11)
        assert await _numbers(stream, 11) == [11]
        driver.send(None)
        known.register.change("words-1", attempt=2)
        while driver.opened < 2:
            await _next(stream, "status")
        driver.lines = 0
        driver.log(1, 2)
        assert await _numbers(stream, 2) == [1, 2]
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(play())


def test_a_new_reader_gets_the_recoveries_that_are_known(known: KnownJobs, driver: Driver) -> None:
    async def play() -> None:
        events = JobEvents(known)
        first = events.of("words-1", None)
        await _next(first, "status")
        for number in (1, 2, 1):
            driver.send(f'event: recovery\ndata: {{"number": {number}}}\n\n'.encode())
        assert [(await _next(first, "recovery"))["number"] for _ in range(3)] == [1, 2, 1]
        second = events.of("words-1", None)
        assert [(await _next(second, "recovery"))["number"] for _ in range(2)] == [2, 1]
        for stream in (first, second):
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(play())


def test_a_stream_without_a_driver_ends_with_the_job(known: KnownJobs) -> None:
    async def play() -> None:
        stream = JobEvents(known).of("words-1", None)
        await _next(stream, "status")
        known.register.apply("words-1", JobEvent.FINISHED)
        assert (await _next(stream, "ended"))["status"] == "FINISHED"

    asyncio.run(play())


def test_requests_to_a_driver_load_no_certificates(
    known: KnownJobs, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("certificates are loaded")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", load)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", load)
    folder = known.supervisor.folder_of("words-1")
    assert DriverLink(folder).summary()["id"] == "words-0"
    assert asyncio.run(forward(folder, "GET", "/jobs"))[0] == 200


def test_a_driver_that_waits_itself_is_given_the_time_for_that(known: KnownJobs, tmp_path: Path) -> None:
    folder = known.supervisor.folder_of("words-2")
    folder.path.mkdir(parents=True)
    is_ready = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await is_ready.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()

    async def play() -> None:
        with folder.socket_path() as path:
            server = await asyncio.start_unix_server(answer, path)
        async with server:
            with pytest.raises(DriverSilent):
                await forward(folder, "POST", "/jobs/1/key", timeout_s=0.05)
            asyncio.get_running_loop().call_later(0.1, is_ready.set)
            assert (await forward(folder, "POST", "/jobs/1/key"))[0] == 200

    asyncio.run(play())


def test_a_token_has_a_limit_of_open_streams_and_a_closed_one_makes_room() -> None:
    async def events() -> AsyncIterator[bytes]:
        yield b"event"

    async def send(_message: Any) -> None:
        pass

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def play() -> None:
        streams = OpenStreams(2)
        asked = {role: Request({"type": "http", "state": {"role": role}}) for role in Role}
        open_ones = [streams.answer(asked[Role.READ], events()) for _ in range(2)]
        with pytest.raises(RequestDenied, match="2 event streams are open with this token") as refused:
            streams.answer(asked[Role.READ], events())
        assert refused.value.http_status == 429
        streams.answer(asked[Role.WRITE], events())
        await open_ones[0]({"type": "http"}, receive, send)
        streams.answer(asked[Role.READ], events())

    asyncio.run(play())

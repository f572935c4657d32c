"""``map_async`` and ``enrich`` on slot processes: calls run at once; a call repeated after a death keeps its key."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from clonos.connectors import collect, files, values
from clonos.job import Job
from tests.speed import scaled

pytestmark = pytest.mark.processes

SIDE_BY_SIDE = 4


@cache
def _meeting() -> threading.Barrier:
    """A barrier per slot process: it opens when the given number of calls wait."""
    return threading.Barrier(SIDE_BY_SIDE, timeout=30)


def _met(number: int) -> int:
    _meeting().wait()
    return number


@pytest.mark.parametrize("ordered", [True, False])
def test_calls_run_concurrently_up_to_the_capacity(tmp_path: Path, ordered: bool) -> None:
    job = Job("meeting", slots="process", store=tmp_path / "store")
    output = collect()
    numbers = range(10 * SIDE_BY_SIDE)
    job.source(values(numbers)).map_async(_met, capacity=SIDE_BY_SIDE, ordered=ordered, name="meet").sink(output)
    job.run()
    assert (output.rows if ordered else sorted(output.rows)) == list(numbers)


async def _met_in_a_loop(number: int) -> int:
    waiting = _waiting()
    waiting.append(asyncio.Event())
    mine = waiting[-1]
    if len(waiting) == SIDE_BY_SIDE:
        for event in waiting:
            event.set()
        waiting.clear()
    await mine.wait()
    return number


@cache
def _waiting() -> list[asyncio.Event]:
    """The calls of a slot process that wait for others."""
    return []


def test_async_functions_are_awaited_side_by_side(tmp_path: Path) -> None:
    job = Job("awaiting", slots="process", store=tmp_path / "store")
    output = collect()
    numbers = range(10 * SIDE_BY_SIDE)
    awaited = job.source(values(numbers)).map_async(_met_in_a_loop, capacity=SIDE_BY_SIDE, timeout="60s")
    awaited.rebalance().map(lambda number: -number, par=3).sink(output)
    job.run()
    assert output.rows == [-number for number in numbers]


def test_a_process_that_dies_in_a_call_loses_no_record_and_the_call_keeps_its_key(tmp_path: Path) -> None:
    keys_folder = tmp_path / "told"
    keys_folder.mkdir()

    def call(number: int, idempotency_key: str) -> int:
        with (keys_folder / f"{number}").open("a", encoding="utf-8") as file:
            file.write(idempotency_key + "\n")
        if number in (7, 23) and not (keys_folder / f"died {number}").exists():
            (keys_folder / f"died {number}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number

    job = Job("telling", slots="process", checkpoint_every="100ms", store=tmp_path / "store")
    numbers = job.source(values(range(40))).map_async(call, capacity=3, name="tell")
    numbers.sink(files.jsonl(tmp_path / "output"))
    result = job.run()
    assert len(result.status.recoveries) >= 1
    assert list(files.read_committed(tmp_path / "output")) == [number * number for number in range(40)]
    keys = {path.name: path.read_text("utf-8").split() for path in keys_folder.iterdir() if "died" not in path.name}
    assert min(len(keys["7"]), len(keys["23"])) > 1
    assert all(len(set(of_number)) == 1 for of_number in keys.values())
    assert len({of_number[0] for of_number in keys.values()}) == 40


class _Directory(BaseHTTPRequestHandler):
    """Answers each request with another number, and 404 for 3; it holds the sixth request until its asker is dead."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []
    sixth, is_dead = threading.Event(), threading.Event()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        number = len(self.asked)
        if number == 6:
            self.sixth.set()
            self.is_dead.wait(30)
        body = json.dumps(number).encode()
        self.send_response(404 if self.path.endswith("/3") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # the asker is dead
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""


class _Server(ThreadingHTTPServer):
    """A server whose connections may break."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Shows nothing."""


def _itself(row: Any) -> Any:
    return row


def test_a_task_that_dies_while_it_enriches_finds_its_cache_again(tmp_path: Path) -> None:
    with _Server(("localhost", 0), _Directory) as server:
        threading.Thread(target=server.serve_forever, name="directory").start()
        job = Job("enriching", slots="process", checkpoint_every="100ms", store=tmp_path / "store")
        rows = job.source(values([{"n": n, "key": n % 10} for n in range(200)])).rebalance()
        address = f"http://localhost:{server.server_port}/users/{{key}}"
        enriched = rows.enrich(address, into="user", cache=(100, "1h"), rate=200, capacity=4, name="enrich")
        enriched.rebalance().map(_itself, name="behind").sink(files.jsonl(tmp_path / "output"))
        with job.start() as handle:
            assert _Directory.sixth.wait(30)
            os.kill(next(task.pid for task in handle.status().tasks if task.name.startswith("enrich")), signal.SIGKILL)
            _Directory.is_dead.set()
            result = handle.wait(scaled(60))
        server.shutdown()
    assert len(result.status.recoveries) == 1
    found: list[Any] = list(files.read_committed(tmp_path / "output"))
    assert [row["n"] for row in found] == list(range(200))
    answers = {(row["key"], row["user"]) for row in found}
    assert len(answers) == 10
    assert {answer for key, answer in answers if key == 3} == {None}

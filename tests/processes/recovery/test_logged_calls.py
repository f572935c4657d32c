"""Functions of many calls with ``log_calls=True``, on slots that are killed: no logged call is made again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, clock, http, random
from clonos.connectors import files, values
from tests.processes.harness.counting_server import counting_server
from tests.processes.harness.running_server import wait_for
from tests.speed import scaled

pytestmark = pytest.mark.processes

TICKETS = 30
CAPACITY = 4
QUESTIONS = 6
KILLS = 3


class Agent:
    """Asks several questions, two at once, changes something, and asks again."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def __call__(self, ticket: int) -> tuple[int, list[int], int, int, float]:
        began, drawn = clock.time_ns(), random.random()
        asked: list[int] = []
        for number in range(0, QUESTIONS, 2):
            paths = [f"/ask/{ticket}/{number + one}/{sum(asked)}/{drawn}" for one in range(2)]
            asked += await asyncio.gather(*(asyncio.to_thread(self._get, path) for path in paths))
        paid = await asyncio.to_thread(self._post, f"/pay/{ticket}/{sum(asked)}")
        assert clock.time_ns() > began
        return ticket, asked, paid, self._get(f"/after/{ticket}/{paid}/0/{began}"), drawn

    def _get(self, path: str) -> int:
        return int(http.get(self.address + path, timeout=30).text)

    def _post(self, path: str) -> int:
        try:
            return int(http.post(self.address + path, timeout=30).text)
        except http.CallInDoubt as doubt:
            return -int(doubt.key[:8], 16)


def test_functions_of_killed_tasks_go_on_after_their_last_logged_call(tmp_path: Path) -> None:
    with counting_server() as server:
        job = Job("agents", checkpoint_every="300ms", standbys=0, spare_slots=KILLS + 1, store=tmp_path / "store")
        tickets = job.source(values(range(TICKETS), batch=1), name="tickets").rebalance()
        answered = tickets.map_async(
            Agent(server.address), capacity=CAPACITY, log_calls=True, effects=True, parallelism=1, name="agent"
        )
        answered.sink(files.jsonl(tmp_path / "output"))
        with job.start(slots="process") as handle:
            for kill in range(1, KILLS + 1):
                wanted = kill * TICKETS * (QUESTIONS + 2) // (KILLS + 1)
                wait_for(lambda wanted=wanted: len(server.answered) >= wanted, f"{wanted} requests")  # type: ignore[misc]
                task = next(task for task in handle.status().tasks if task.name.startswith("agent"))
                os.kill(task.pid, signal.SIGKILL)
                wait_for(lambda kill=kill: len(handle.status().recoveries) >= kill, "a recovery")  # type: ignore[misc]
            result = handle.wait(scaled(120))
    assert len(result.status.recoveries) >= KILLS
    rows: list[Any] = list(files.read_committed(tmp_path / "output"))
    assert sorted(ticket for ticket, *_ in rows) == list(range(TICKETS))
    for ticket, asked, paid, after, drawn in rows:
        for number, answer in enumerate(asked):
            before = sum(asked[: number - number % 2])
            assert server.answered[answer].path == f"/ask/{ticket}/{number}/{before}/{drawn}"
        assert server.answered[after].path.startswith(f"/after/{ticket}/{paid}/")
    effects = [asked for asked in server.answered.values() if asked.method == "POST"]
    assert max(Counter(asked.path.split("/")[2] for asked in effects).values()) == 1, "an effect took place twice"
    reads = [asked for asked in server.answered.values() if asked.method == "GET"]
    assert len(reads) - len({asked.key for asked in reads}) <= KILLS * CAPACITY * 4, "two at once, and those before"

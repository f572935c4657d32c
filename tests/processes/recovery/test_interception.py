"""Libraries in a step with ``intercept=True``, on slots that are killed: exact, and no logged request is repeated."""

from __future__ import annotations

import datetime
import os
import random
import secrets
import signal
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from clonos import Context, Job, ValueState
from clonos.connectors import files, values
from tests.processes.harness.counting_server import counting_server
from tests.processes.harness.running_server import wait_for
from tests.speed import scaled

pytestmark = pytest.mark.processes

RECORDS = 120
KILLS = 3


class Asking:
    """Asks by three clients, draws and reads clocks, and adds all of it to its state."""

    total = ValueState("total", default=0.0)

    def __init__(self, address: str) -> None:
        self.address = address

    def open(self, context: Any) -> None:
        self.client, self.session = httpx.Client(trust_env=False, timeout=30), requests.Session()

    def close(self) -> None:
        self.client.close()
        self.session.close()

    def process(self, number: int, context: Context[None, Any]) -> None:
        answers = (
            int(self.session.get(f"{self.address}/requests/{number}", timeout=30).text),
            int(self.client.get(f"{self.address}/httpx/{number}").text),
            int(urllib.request.urlopen(f"{self.address}/urllib/{number}", timeout=30).read()),
        )
        drawn = random.random() + int(uuid.uuid4()) % 1_000 + int(secrets.token_hex(1), 16)
        seen = drawn + time.time() % 1_000 + datetime.datetime.now().microsecond
        total = context.state(self.total)
        total.value += seen + sum(answers)
        context.emit((number, answers, seen, total.value))


def _itself(row: Any) -> Any:
    return row


def _wait_for_rows(handle: Any, count: int) -> int:
    """Waits until the next task has received rows, with all that they depend on; returns how many it has."""

    def received() -> int:
        return sum(task.counters.get("records_in", 0) for task in handle.status().tasks if task.name == "behind/0")

    wait_for(lambda: received() >= count, f"{count} rows")
    return received()


def _wait_for_recoveries(handle: Any, count: int) -> None:
    wait_for(lambda: len([each for each in handle.status().recoveries if each.task == "ask/0"]) >= count, "a recovery")


def test_killed_tasks_repeat_what_libraries_gave_and_send_no_logged_request_again(tmp_path: Path) -> None:
    with counting_server() as server:
        job = Job(
            "asking",
            checkpoint_every="10min",
            step_records_max=5,
            step_records_first=5,
            standbys=0,  # so that a successor has a slot of its own, and no kill takes the holder of its log too
            spare_slots=KILLS,
            store=tmp_path / "store",
        )
        numbers = job.source(values(range(RECORDS), batch=5), name="numbers").rebalance()
        asked = numbers.process(Asking(server.address), intercept=True, name="ask")
        asked.rebalance().map(_itself, name="behind").sink(files.jsonl(tmp_path / "output"))
        kills: list[tuple[int, int]] = []  # of each: the records whose outcomes another task had, and all requests
        with job.start(slots="process") as handle:
            for kill in range(1, KILLS + 1):
                held = _wait_for_rows(handle, kill * RECORDS // (KILLS + 1))
                kills.append((held, len(server.answered)))
                task = next(task for task in handle.status().tasks if task.name == "ask/0")
                os.kill(task.pid, signal.SIGKILL)
                _wait_for_recoveries(handle, kill)
            result = handle.wait(scaled(120))
    assert len(result.status.recoveries) >= KILLS
    assert sum(recovery.replayed_calls for recovery in result.status.recoveries) > 0
    rows: list[Any] = list(files.read_committed(tmp_path / "output"))
    assert sorted(number for number, *_ in rows) == list(range(RECORDS))
    total = 0.0
    for number, answers, seen, summed in rows:
        for client, answer in zip(("requests", "httpx", "urllib"), answers, strict=True):
            assert server.answered[answer].path == f"/{client}/{number}"
        total += seen + sum(answers)
        assert summed == total
    again = [
        asked
        for held, answered in kills
        for number, asked in server.answered.items()
        if number > answered and int(asked.path.rpartition("/")[2]) < held
    ]
    assert again == []
    assert len(server.answered) >= 3 * RECORDS

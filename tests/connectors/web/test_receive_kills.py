"""``web.receive`` under load while its task and others die: no answered request lost, none counted twice."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import codecs, collect, secrets, web
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.processes.harness.drawing_job import is_quiescent, kill_task
from tests.processes.harness.running_job import LIMIT_S, running
from tests.processes.jobs.test_secrets import everything_in
from tests.unit.connectors.web.sending import PATH, free_port

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(120)]

OPTIONS = Options(checkpoint_every_ms=300, heartbeat_ms=50)
SENDERS = 4
STEP = 300
"""Events between two kills."""

TOKEN = "t0ken-of-the-webhook-8153"


class Shop:
    """Senders of numbered events. Each is sent until it is answered with 200, and every fifth once more then."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent = self.answered = 0
        self.refusals: set[int] = set()
        self._pool = ThreadPoolExecutor(SENDERS)
        self._changed = threading.Condition()

    def advance(self) -> None:
        """Begins to send further events."""
        for sender in range(SENDERS):
            self._pool.submit(self._send_all, range(self.sent + sender, self.sent + STEP, SENDERS))
        self.sent += STEP

    def wait(self, count: int) -> None:
        """Waits until that many events were answered."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.answered >= count, LIMIT_S), f"{self.answered} were answered"

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _send_all(self, numbers: range) -> None:
        pause = threading.Event()
        for number in numbers:
            for _ in range(2 if number % 5 == 0 else 1):
                for _ in range(int(LIMIT_S * 100)):
                    if self._send(number) == 200:
                        break
                    pause.wait(0.01)
            with self._changed:
                self.answered += 1
                self._changed.notify_all()

    def _send(self, number: int) -> int:
        """Sends an event on a connection of its own; returns the status of the answer, 0 without one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        headers = {"Idempotency-Key": f"event-{number}", "Authorization": f"Bearer {TOKEN}"}
        try:
            connection.request("POST", PATH, json.dumps(number).encode(), headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()
        self.refusals |= {status} - {200, 503}
        return status


def test_kills_of_tasks_lose_no_answered_request_and_count_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    shop = Shop(free_port())
    graph = JobGraph("drawing")
    first: Any = collect()
    second: Any = collect()
    source = web.receive(shop.port, PATH, token=secrets.env("SHOP_TOKEN"), decode=codecs.json())
    drawn = graph.source(source, name="events").map(lambda n: {"n": n, "draw": random.getrandbits(30)})
    drawn.sink(first)
    drawn.rebalance().map(dict, name="row", parallelism=2).sink(second)
    writer = max(graph.compile(OPTIONS).plan.tasks)
    try:
        with running(graph, tmp_path, OPTIONS) as job:
            job.wait_for(is_quiescent)
            for task in (TaskId(0), writer):
                shop.advance()
                shop.wait(shop.sent - STEP + STEP // 4)  # the kill comes in the middle of the load
                kill_task(job, task)
            shop.advance()
            shop.wait(shop.sent)
            assert job.generation == 1
            job.driver.stop(drain=True)
            done = job.end()
            reported = repr(job.progress)
    finally:
        shop.close()
    assert isinstance(done, JobDone)
    assert done.ending is Ending.DRAINED
    assert not shop.refusals
    rows = [(row["n"], row["draw"]) for row in first.rows]
    assert sorted(number for number, _ in rows) == list(range(shop.sent))
    assert sorted((row["n"], row["draw"]) for row in second.rows) == sorted(rows)
    assert TOKEN not in reported
    assert TOKEN.encode() not in everything_in(tmp_path)  # the store, because all processes have ended

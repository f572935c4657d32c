"""A service that never finishes its answer delays a job for the timeout of the call, and no longer."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from clonos import http
from clonos.connectors import collect, files, values
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.job import Job
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled
from tests.unit.services.hostile import Conversation, Hostile, hostile

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)


def drip(conversation: Conversation) -> None:
    """A header line that never ends."""
    conversation.read()
    conversation.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    conversation.drip()


def hold(conversation: Conversation) -> None:
    """A request without an answer until the server ends."""
    conversation.read()
    conversation.hold()


class Stopper:
    """Stops the job of this process by SIGTERM while a call is open; aborts it if nothing else helps."""

    def __init__(self, gate: Gate, server: Hostile, output: Path) -> None:
        self._gate, self._server, self._output = gate, server, output
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stopper")
        self._thread.start()

    def ended(self) -> None:
        """The job has ended."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        self._gate.open_to(1)
        is_stopped = (
            self._wait_until(lambda: self.rows_committed() == 1)
            and self._open_call()
            and self._signal()
            and self._ended.wait(LIMIT_S)
        )
        if not is_stopped:
            self._signal()
            self._signal()

    def rows_committed(self) -> int:
        """Rows that a checkpoint has committed."""
        return len(list(files.read_committed(self._output))) if self._output.exists() else 0

    def _open_call(self) -> bool:
        self._gate.open_to(2)
        return self._wait_until(lambda: len(self._server.requests) > 1)

    def _signal(self) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    def _wait_until(self, condition: Any) -> bool:
        for _ in range(int(LIMIT_S * 50)):
            if condition():
                return True
            if self._ended.wait(0.02):
                return False
        return False


@pytest.mark.parametrize("step", ["map", "map_async"])
def test_a_job_checkpoints_and_stops_while_a_service_never_finishes_its_answer(tmp_path: Path, step: str) -> None:
    gate = Gate(tmp_path / "gate")
    output = tmp_path / "output"
    with hostile(drip) as server:
        url = server.url

        def ask(number: int) -> dict[str, Any]:
            try:
                return {"number": number, "answer": http.get(url, timeout=0.5).text}
            except http.HttpTimeout:
                return {"number": number, "answer": "late"}

        job = Job("asking", slots="process", checkpoint_every="100ms", store=tmp_path / "store")
        asked = getattr(job.source(GatedNumbers(gate)), step)(ask, name="ask")
        asked.sink(files.jsonl(output))
        stopper = Stopper(gate, server, output)
        try:
            result = job.run()
        finally:
            stopper.ended()
    assert result.ending is Ending.DRAINED
    rows = list(files.read_committed(output))
    assert rows[0] == {"number": 0, "answer": "late"}
    assert [row["number"] for row in rows[1:]] in ([[1]] if step == "map" else [[], [1]])  # or left open, to be resumed


def test_a_slot_uses_the_settings_of_the_file_of_the_job(tmp_path: Path) -> None:
    before = http.common_settings()
    http.configure(timeout=0.2)
    try:
        with hostile(hold) as server:
            url = server.url

            def timeout_of(number: int) -> float:
                try:
                    http.get(url)
                except http.HttpTimeout as late:
                    return late.timeout_s
                raise AssertionError("the server does not answer")

            job = Job("configured", slots="process", store=tmp_path / "store")
            job.source(values([1])).map(timeout_of).sink(output := collect())
            job.run()
    finally:
        http.use_common_settings(before)
    assert output.rows == [0.2]

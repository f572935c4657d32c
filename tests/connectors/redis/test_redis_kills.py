"""Source and sink of Redis under load while tasks and the server are killed: each entry counts once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, redis
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.connectors.redis.streams import add_stream, found, publish
from tests.connectors.servers.redis import RedisProcess
from tests.processes.harness.drawing_job import is_quiescent, kill, wait_for_successors
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
STEP = 400
"""Messages between two kills."""


class DrawingJob:
    """A stream -> draw -> x 2 another stream; the draws are collected with the checkpoint too."""

    def __init__(self, server: RedisProcess) -> None:
        self.server = server
        self.given = add_stream(server, "numbers")
        self.drawn = add_stream(server, "drawn")
        self.sent = 0
        self.graph = JobGraph("drawing")
        self.collected: Any = collect()
        numbers = self.graph.source(redis.source(self.given, url=server.full_url, decode=json.loads), name="numbers")
        drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(30)})
        drawn.sink(self.collected)
        rows = drawn.rebalance().map(dict, name="row", parallelism=2)
        rows.sink(redis.sink("drawn", url=server.full_url))
        plan = self.graph.compile(OPTIONS).plan
        self.writers = [task for task in plan.tasks if any(channel.receiver is None for channel in plan.outputs[task])]

    def advance(self) -> None:
        """Puts further messages into the stream."""
        publish(self.server, "numbers", range(self.sent, self.sent + STEP))
        self.sent += STEP

    def rows(self) -> list[dict[str, int]]:
        """What is in the other stream."""
        return [json.loads(fields[b"data"]) for _, fields in found(self.server, self.drawn)]

    def wait(self, job: RunningJob, count: int) -> None:
        """Waits until the other stream has that many rows."""
        job.wait_for(lambda _: int(self.server.ask("XLEN", self.drawn)) >= count)

    def stop(self, job: RunningJob) -> None:
        """Ends the job after a last checkpoint, and checks that it has each number once."""
        job.driver.stop(drain=True)
        done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.DRAINED


def kill_task(job: RunningJob, task: TaskId) -> None:
    before = job.incarnations()
    kill(job, task)
    wait_for_successors(job, before, task)


def test_kills_of_tasks_and_of_the_server_and_a_resume_count_each_message_once(
    tmp_path: Path, server: RedisProcess
) -> None:
    drawing = DrawingJob(server)
    with running(drawing.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        drawing.advance()
        drawing.wait(job, STEP // 4)  # the kills come in the middle of the load
        kill_task(job, TaskId(0))
        drawing.advance()
        drawing.wait(job, STEP + STEP // 4)
        kill_task(job, drawing.writers[0])
        drawing.advance()
        drawing.wait(job, 2 * STEP + STEP // 4)
        server.kill()
        server.start()
        drawing.advance()
        drawing.wait(job, drawing.sent)
        assert job.generation == 1
        drawing.stop(job)
    drawing.advance()
    with running(drawing.graph, tmp_path, OPTIONS, resume=True) as job:
        drawing.wait(job, drawing.sent)
        drawing.stop(job)
    assert sorted(row["n"] for row in drawing.collected.rows) == list(range(drawing.sent))
    drawn = sorted((row["n"], row["draw"]) for row in drawing.collected.rows)
    assert sorted((row["n"], row["draw"]) for row in drawing.rows()) == drawn

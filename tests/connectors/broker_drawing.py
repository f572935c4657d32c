"""A job from a broker into a broker under load, and the kills that its tests share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.connectors.servers.server_process import ServerProcess
from tests.processes.harness.drawing_job import is_quiescent, kill_task
from tests.processes.harness.running_job import RunningJob, running

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
STEP = 400
"""Messages between two kills."""


class BrokerDrawing(ABC):
    """A source -> draw -> x 2 a sink; the draws are collected with the checkpoint too."""

    def __init__(self, source: Any, sink: Any) -> None:
        self.sent = 0
        self.graph = JobGraph("drawing")
        self.collected: Any = collect()
        numbers = self.graph.source(source, name="numbers")
        drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(30)})
        drawn.sink(self.collected)
        drawn.rebalance().map(dict, name="row", parallelism=2).sink(sink)
        plan = self.graph.compile(OPTIONS).plan
        self.writers = [task for task in plan.tasks if any(channel.receiver is None for channel in plan.outputs[task])]

    @abstractmethod
    def publish(self, numbers: range) -> None:
        """Gives numbers to the source."""

    @abstractmethod
    def count(self) -> int:
        """How many rows the sink has written."""

    def advance(self) -> None:
        """Gives the source further numbers."""
        self.publish(range(self.sent, self.sent + STEP))
        self.sent += STEP

    def wait(self, job: RunningJob, count: int) -> None:
        """Waits until the sink has written that many rows."""
        job.wait_for(lambda _: self.count() >= count)

    def stop(self, job: RunningJob) -> None:
        """Ends the job after a last checkpoint, and checks that it has each number once."""
        job.driver.stop(drain=True)
        done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.DRAINED
        assert sorted(row["n"] for row in self.collected.rows) == list(range(self.sent))

    def draws(self) -> list[tuple[int, int]]:
        """Each number with its draw, as the job has collected them."""
        return sorted((row["n"], row["draw"]) for row in self.collected.rows)

    def run_through_kills(self, folder: Path, server: ServerProcess) -> None:
        """Runs the job while the source, a task of the sink and the server are killed, and stops it."""
        with running(self.graph, folder, OPTIONS) as job:
            job.wait_for(is_quiescent)
            self.advance()
            self.wait(job, STEP // 4)  # the kills come in the middle of the load
            kill_task(job, TaskId(0))
            self.advance()
            self.wait(job, STEP + STEP // 4)
            kill_task(job, self.writers[0])
            self.advance()
            self.wait(job, 2 * STEP + STEP // 4)
            server.kill()
            server.start()
            self.advance()
            self.wait(job, self.sent)
            assert job.generation == 1
            self.stop(job)

    def resume(self, folder: Path) -> None:
        """Goes on with further numbers, and stops again."""
        self.advance()
        with running(self.graph, folder, OPTIONS, resume=True) as job:
            self.wait(job, self.sent)
            self.stop(job)

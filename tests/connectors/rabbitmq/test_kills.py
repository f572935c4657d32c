"""Source and sink of RabbitMQ under load while tasks and the broker are killed: no message lost, none counted twice."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, rabbitmq
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.core.coordinator.coordinator_effects import Alarm, Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.operators.connector_contract import WriterIdentity
from clonos_services import random
from tests.connectors.rabbitmq.messages import await_end, declare, publish, taken
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.processes.harness.drawing_job import is_quiescent, kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
STEP = 400
"""Messages between two kills."""


class DrawingJob:
    """A queue -> draw -> x 2 another queue; the draws are collected with the checkpoint too."""

    def __init__(self, rabbit: RabbitServer, name: str, **options: Any) -> None:
        self.rabbit = rabbit
        self.name_in, self.name_out = declare(rabbit, name), declare(rabbit, f"drawn-{name}")
        self.sent = 0
        self.found: dict[str, bytes] = {}  # bodies by message id
        self.numbers: set[int] = set()
        self.conflicts: list[str] = []  # ids of several rows
        self.graph = JobGraph("drawing")
        self.collected: Any = collect()
        numbers = self.graph.source(
            rabbitmq.queue(self.name_in, url=rabbit.full_url, decode=json.loads, **options), name="numbers"
        )
        drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(30)})
        drawn.sink(self.collected)
        rows = drawn.rebalance().map(dict, name="row", parallelism=2)
        rows.sink(rabbitmq.exchange("", url=rabbit.full_url, routing_key=self.name_out))
        plan = self.graph.compile(OPTIONS).plan
        self.writers = [task for task in plan.tasks if any(channel.receiver is None for channel in plan.outputs[task])]
        self.source = TaskId(0)

    def advance(self) -> None:
        """Puts further messages into the queue."""
        publish(self.rabbit, self.name_in, range(self.sent, self.sent + STEP), first=self.sent)
        self.sent += STEP

    def drain(self) -> int:
        """Takes rows out of the other queue; returns for how many numbers there were rows so far."""
        for properties, body in taken(self.rabbit, self.name_out):
            self.numbers.add(json.loads(body)["n"])
            if self.found.setdefault(properties.message_id, body) != body:
                self.conflicts.append(properties.message_id)
        return len(self.numbers)

    def wait(self, job: RunningJob, count: int) -> None:
        """Waits until rows have come for that many numbers."""
        job.wait_for(lambda _: self.drain() >= count)

    def stop(self, job: RunningJob) -> None:
        """Ends the job after a last checkpoint, and checks that it has each number once."""
        job.driver.stop(drain=True)
        done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.DRAINED
        assert sorted(row["n"] for row in self.collected.rows) == list(range(self.sent))


def kill_task(job: RunningJob, task: TaskId) -> None:
    before = job.incarnations()
    kill(job, task)
    wait_for_successors(job, before, task)


def test_kills_of_tasks_and_of_the_broker_lose_no_message_and_count_none_twice(
    tmp_path: Path, rabbit: RabbitServer
) -> None:
    drawing = DrawingJob(rabbit, "numbers", prefetch=100)
    with running(drawing.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        drawing.advance()
        drawing.wait(job, STEP // 4)  # the kills come in the middle of the load
        kill_task(job, drawing.source)
        drawing.advance()
        drawing.wait(job, STEP + STEP // 4)
        kill_task(job, drawing.writers[0])
        drawing.advance()
        drawing.wait(job, 2 * STEP + STEP // 4)
        rabbit.kill()
        rabbit.start()
        drawing.advance()
        drawing.wait(job, drawing.sent)
        assert job.generation == 1
        drawing.stop(job)
    assert not drawing.conflicts
    drawn = {row["n"]: row["draw"] for row in drawing.collected.rows}
    rows = [json.loads(body) for body in drawing.found.values()]
    assert sorted((row["n"], row["draw"]) for row in rows) == sorted(drawn.items())


def test_messages_that_wait_for_checkpoints_outlast_the_death_of_all_processes(
    tmp_path: Path, rabbit: RabbitServer
) -> None:
    drawing = DrawingJob(rabbit, "waiting", acknowledge="checkpoint")
    with running(drawing.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        drawing.advance()
        wait_for_checkpoint(job)
        drawing.advance()
        drawing.wait(job, drawing.sent - STEP // 2)
        before = job.incarnations()
        for pid in job.driver.ask(lambda coordinator: [register.pid for register in coordinator.slots]):
            os.kill(pid, signal.SIGKILL)
        wait_for_successors(job, before, *before)
        drawing.advance()
        drawing.wait(job, drawing.sent)
        alarms = [event.text for event in job.progress if isinstance(event, Alarm)]
        assert any("no keeper has the journal" in text for text in alarms), alarms
        drawing.stop(job)
    with running(drawing.graph, tmp_path, OPTIONS, resume=True) as job:  # which is given the last messages again
        drawing.advance()
        drawing.wait(job, drawing.sent)
        drawing.stop(job)


def test_a_broker_that_dies_is_a_fault_and_gives_and_takes_the_rest_when_it_is_back(rabbit: RabbitServer) -> None:
    name, other = declare(rabbit, "dies"), declare(rabbit, "dies-too")
    publish(rabbit, name, range(3))
    source = rabbitmq.queue(name, url=rabbit.full_url, decode=json.loads)
    patient = rabbitmq.exchange("", url=rabbit.full_url, routing_key=other).immediate_writer()
    hasty = rabbitmq.exchange("", url=rabbit.full_url, routing_key=other, timeout="100ms").immediate_writer()
    for writer in (patient, hasty):
        writer.register(WriterIdentity("job-1", "out/0", 0, 1), 0)
    patient.write(0, [0, 1])
    with closing(source.connect(0)) as feed:
        while not feed.receive(100):
            pass
        rabbit.kill()
        await_end(feed, "RabbitMQ at")
    with pytest.raises(SystemUnreachable, match="connecting"):
        source.connect(0)
    with closing(hasty), pytest.raises(SystemUnreachable):
        hasty.write(0, [0])
    rabbit.launch()
    with closing(patient):
        assert patient.write(2, [2, 3]) == 4  # begun before the broker answers
    rabbit.wait()
    assert [json.loads(body) for _, body in taken(rabbit, other)] == [0, 1, 2, 3]
    data = b""
    with closing(source.connect(0)) as feed:
        while len(source.cut(data)) < 3:
            data += feed.receive(100) or b""
    assert source.decode(source.cut(data)) == [0, 1, 2]

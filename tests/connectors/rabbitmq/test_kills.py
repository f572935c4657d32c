"""Source and sink of RabbitMQ under load while tasks and the broker are killed: no message lost, none counted twice."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import rabbitmq
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.core.coordinator.coordinator_effects import Alarm
from clonos.operators.connector_contract import WriterIdentity
from tests.connectors.broker_drawing import OPTIONS, STEP, BrokerDrawing
from tests.connectors.rabbitmq.messages import await_end, declare, publish, taken
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.processes.harness.drawing_job import is_quiescent, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]


class QueueDrawing(BrokerDrawing):
    """From a queue into another one."""

    def __init__(self, rabbit: RabbitServer, name: str, **options: Any) -> None:
        self.rabbit = rabbit
        self.name_in, self.name_out = declare(rabbit, name), declare(rabbit, f"drawn-{name}")
        self.found: dict[str, bytes] = {}  # bodies by message id
        self.numbers: set[int] = set()
        self.conflicts: list[str] = []  # ids of several rows
        source = rabbitmq.queue(self.name_in, url=rabbit.full_url, decode=json.loads, **options)
        super().__init__(source, rabbitmq.exchange("", url=rabbit.full_url, routing_key=self.name_out))

    def publish(self, numbers: range) -> None:
        publish(self.rabbit, self.name_in, numbers, first=numbers.start)

    def count(self) -> int:
        """Takes rows out of the other queue; returns for how many numbers there were rows so far."""
        for properties, body in taken(self.rabbit, self.name_out):
            self.numbers.add(json.loads(body)["n"])
            if self.found.setdefault(properties.message_id, body) != body:
                self.conflicts.append(properties.message_id)
        return len(self.numbers)


def test_kills_of_tasks_and_of_the_broker_lose_no_message_and_count_none_twice(
    tmp_path: Path, rabbit: RabbitServer
) -> None:
    drawing = QueueDrawing(rabbit, "numbers", prefetch=100)
    drawing.run_through_kills(tmp_path, rabbit)
    assert not drawing.conflicts
    rows = [json.loads(body) for body in drawing.found.values()]
    assert sorted((row["n"], row["draw"]) for row in rows) == drawing.draws()


def test_messages_that_wait_for_checkpoints_outlast_the_death_of_all_processes(
    tmp_path: Path, rabbit: RabbitServer
) -> None:
    drawing = QueueDrawing(rabbit, "waiting", acknowledge="checkpoint")
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
    drawing.resume(tmp_path)  # which is given the last messages again


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

"""The immediate Kafka sink in jobs whose tasks and broker are killed: what a reader of committed records sees."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, kafka
from clonos.core.coordinator.coordinator_effects import Alarm, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.connectors.kafka.producing import committed
from tests.connectors.servers.kafka import KafkaServer
from tests.processes.harness.drawing_job import ON_REQUEST_MS, is_quiescent, kill, take_checkpoint, wait_for_successors
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=1_000, heartbeat_ms=50)
ON_REQUEST = Options(checkpoint_every_ms=ON_REQUEST_MS, heartbeat_ms=50)
ALARM = re.compile(r"output (\d+) to (\d+) of (\S+) had left before the rollback")
STEP = 300
"""Records of each of the two splits between two kills."""


class DrawingJob:
    """source x 2 -> draw -> x 2 a topic of three partitions; the draws are collected with the checkpoint too."""

    def __init__(self, folder: Path, broker: KafkaServer, topic: str) -> None:
        self.broker, self.topic = broker, broker.create_topic(topic, 3)
        self.gate, self.reach = Gate(folder / "gate"), 0
        self.graph = JobGraph("drawing")
        self.collected: Any = collect()
        drawn = self.graph.source(GatedNumbers(self.gate), parallelism=2).map(
            lambda n: {"n": n, "draw": random.getrandbits(30)}, parallelism=2
        )
        rows = drawn.rebalance().map(dict, name="row", parallelism=2)
        rows.sink(kafka.sink(self.topic, servers=broker.servers, key=lambda row: str(row["n"])))
        drawn.sink(self.collected)

    @property
    def writers(self) -> list[TaskId]:
        """Tasks that write to the topic."""
        plan = self.graph.compile(OPTIONS).plan
        return [task for task in plan.tasks if any(channel.receiver is None for channel in plan.outputs[task])]

    def advance(self) -> None:
        """Lets each split give further records."""
        self.reach += STEP
        self.gate.open_to(self.reach)

    def wait_for_rows(self, job: RunningJob) -> None:
        """Waits until all rows so far are readable."""
        job.wait_for(lambda _: len({row["n"] for row in self.rows()}) == 2 * self.reach)

    def rows(self) -> list[dict[str, int]]:
        """Committed rows."""
        return [json.loads(message.value()) for message in committed(self.broker, self.topic)]

    def expected(self) -> list[tuple[int, int]]:
        """Each number with its draw, as the job has collected them."""
        rows = sorted((row["n"], row["draw"]) for row in self.collected.rows)
        assert [n for n, _ in rows] == list(range(2 * self.reach))
        return rows


def headers(message: Any) -> tuple[str, int, int]:
    """Task, number and generation of a row."""
    found = dict(message.headers())
    return found["clonos-task"].decode(), int(found["clonos-number"]), int(found["clonos-generation"])


def kill_broker(drawing: DrawingJob, _job: RunningJob) -> None:
    drawing.broker.kill()
    drawing.broker.start()


def kill_task(drawing: DrawingJob, job: RunningJob) -> None:
    before, task = job.incarnations(), drawing.writers[0]
    kill(job, task)
    wait_for_successors(job, before, task)


def kill_both(drawing: DrawingJob, job: RunningJob) -> None:
    drawing.broker.kill()
    before, task = job.incarnations(), drawing.writers[1]
    kill(job, task)
    drawing.broker.start()
    wait_for_successors(job, before, task)


def pause_broker(drawing: DrawingJob, job: RunningJob) -> None:
    """The broker answers nothing until the task of the sink has a successor, whose predecessor may still write."""
    drawing.broker.pause()
    before, task = job.incarnations(), drawing.writers[0]
    kill(job, task)
    job.wait_for(lambda coordinator: job_has_later(coordinator, task, before))
    drawing.broker.unpause()
    wait_for_successors(job, before, task)


def job_has_later(coordinator: Any, task: TaskId, before: dict[TaskId, int]) -> bool:
    return bool(coordinator.view.placements[task].incarnation > before[task])


INJECTIONS: list[Callable[[DrawingJob, RunningJob], None]] = [kill_task, kill_broker, kill_both, pause_broker]


def test_kills_of_the_sinks_task_and_of_the_broker_leave_each_row_in_the_topic_once(
    tmp_path: Path, broker: KafkaServer
) -> None:
    drawing = DrawingJob(tmp_path, broker, "kills")
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        for inject in INJECTIONS:
            drawing.advance()
            inject(drawing, job)
        drawing.advance()
        drawing.gate.end(drawing.reach)
        generation = job.generation
        assert isinstance(job.end(), JobDone)
    assert generation == 1
    messages = committed(broker, drawing.topic)
    rows = [json.loads(message.value()) for message in messages]
    assert sorted((row["n"], row["draw"]) for row in rows) == drawing.expected()
    assert all(message.key() == str(row["n"]).encode() for message, row in zip(messages, rows, strict=True))
    for name in {headers(message)[0] for message in messages}:
        numbers = sorted(number for task, number, _ in map(headers, messages) if task == name)
        assert numbers == list(range(len(numbers)))


def alarms_of(job: RunningJob) -> list[re.Match[str]]:
    """Alarms of rows that had left before a rollback: first and last number, and task."""
    return [found for event in job.progress if isinstance(event, Alarm) and (found := ALARM.match(event.text))]


def test_a_rollback_repeats_exactly_the_rows_that_the_alarm_numbers(tmp_path: Path, broker: KafkaServer) -> None:
    drawing = DrawingJob(tmp_path, broker, "rollbacks")
    with running(drawing.graph, tmp_path, ON_REQUEST, parallelism=2) as job:
        job.wait_for(is_quiescent)
        drawing.advance()
        drawing.wait_for_rows(job)
        take_checkpoint(job, 1)  # with output of the job: until it has some, checkpoints come early
        drawing.advance()
        drawing.wait_for_rows(job)
        before = job.incarnations()
        for pid in job.driver.ask(lambda coordinator: [register.pid for register in coordinator.slots]):
            os.kill(pid, signal.SIGKILL)
        wait_for_successors(job, before, *before)
        drawing.advance()
        drawing.gate.end(drawing.reach)
        assert isinstance(job.end(), JobDone)
        alarms = alarms_of(job)
    messages = committed(broker, drawing.topic)
    last = {}
    for message in sorted(messages, key=lambda message: headers(message)[2]):
        task, number, _ = headers(message)
        last[task, number] = json.loads(message.value())
    assert sorted((row["n"], row["draw"]) for row in last.values()) == drawing.expected()
    repeated = Counter(headers(message)[:2] for message in messages)
    twice = {place for place, count in repeated.items() if count > 1}
    announced = {(alarm[3], number) for alarm in alarms for number in range(int(alarm[1]), int(alarm[2]) + 1)}
    assert twice
    assert twice == announced
    assert max(repeated.values()) == 2

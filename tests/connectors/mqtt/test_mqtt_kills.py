"""Source and sink of MQTT under load while tasks are killed: each message with an id counts once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, mqtt
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from tests.connectors.mqtt.topics import Observer, observed, publish
from tests.connectors.servers.mosquitto import MosquittoServer
from tests.processes.harness.drawing_job import is_quiescent, kill_task
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
STEP = 300
"""Messages between two kills."""


def wait_for_ids(job: RunningJob, seen: Observer, ids: int) -> None:
    job.wait_for(lambda _: seen.has(ids))


def test_kills_of_the_reading_task_and_of_a_sink_task_count_each_message_once(
    tmp_path: Path, mosquitto: MosquittoServer
) -> None:
    graph, collected = JobGraph("copies"), collect()
    source: Any = mqtt.source("numbers", session="copies", url=mosquitto.full_url, decode=json.loads)
    source.connect(0).close()  # the session begins: the broker drops what comes before it
    numbers = graph.source(source, name="numbers")
    numbers.sink(collected)
    numbers.rebalance().map(lambda n: n, name="row", parallelism=2).sink(mqtt.sink("copies", url=mosquitto.full_url))
    plan = graph.compile(OPTIONS).plan
    writers = [task for task in plan.tasks if any(channel.receiver is None for channel in plan.outputs[task])]
    with observed(mosquitto, "copies") as seen, running(graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        for step, task in enumerate((TaskId(0), writers[0], None)):
            publish(mosquitto, "numbers", range(step * STEP, (step + 1) * STEP), first=step * STEP)
            wait_for_ids(job, seen, step * STEP + STEP // 4)
            if task is not None:
                kill_task(job, task)
        wait_for_ids(job, seen, 3 * STEP)
        job.driver.stop(drain=True)
        done = job.end()
    assert isinstance(done, JobDone)
    assert done.ending is Ending.DRAINED
    assert sorted(collected.rows) == list(range(3 * STEP))
    assert sorted(json.loads(payload) for payload in dict(seen.messages).values()) == list(range(3 * STEP))

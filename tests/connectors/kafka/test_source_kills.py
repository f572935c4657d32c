"""A job from Kafka to Kafka whose source task and broker are killed while partitions are added."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.cimpl import NewPartitions

from clonos.connectors import kafka
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.job import Job
from clonos.job.handle import Handle
from tests.connectors.kafka.producing import await_blocked_calls, committed, produce
from tests.connectors.servers.kafka import KafkaServer
from tests.speed import scaled

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

LIMIT_S = scaled(90.0)
STEP = 200
MONITOR = "piping-monitor"


class Piping:
    """A job that copies numbers from one topic to another, in the transactional mode."""

    def __init__(self, folder: Path, broker: KafkaServer, schema: Any) -> None:
        self.folder, self.broker, self.schema = folder, broker, schema
        name = "piping" if schema is None else "piping-columns"
        self.given, self.results = broker.create_topic(f"{name}-in", 2), broker.create_topic(f"{name}-out", 2)
        self.written = 0

    def job(self) -> Job:
        """A new description of the same job."""
        job = Job("piping", slots="process", parallelism=2, checkpoint_every="300ms", store=self.folder / "store")
        servers = self.broker.servers
        options: Any = {"decode": json.loads, "out_of_order": "1s"} if self.schema is None else {"schema": self.schema}
        source = kafka.source(self.given, servers=servers, watch="300ms", group=MONITOR, **options)
        rows = job.source(source, name="numbers").map(lambda row: {"n": row["n"]}, name="rows")
        rows.sink(kafka.sink(self.results, servers=servers, mode="transactional"), name="copies")
        return job

    def produce(self, partitions: int) -> None:
        """Further numbers to each partition."""
        for partition in range(partitions):
            numbers = range(self.written, self.written + STEP)
            produce(self.broker, self.given, [json.dumps({"n": number}) for number in numbers], partition)
            self.written += STEP

    def wait(self, handle: Handle) -> None:
        """Until all numbers are there."""
        waiting, deadline = threading.Event(), time.monotonic() + LIMIT_S
        while len(found := self.numbers()) < self.written:
            assert time.monotonic() < deadline, (len(found), self.written, handle.status())
            waiting.wait(0.2)

    def numbers(self) -> list[int]:
        """Committed copies."""
        return [json.loads(message.value())["n"] for message in committed(self.broker, self.results)]

    def group_offsets(self) -> dict[int, int]:
        """What a monitor of the lag reads."""
        admin = self.broker.admin()
        asked = ConsumerGroupTopicPartitions(MONITOR)
        found = admin.list_consumer_group_offsets([asked])[MONITOR].result()
        own = [each for each in found.topic_partitions if each.topic == self.given and each.offset >= 0]
        return {each.partition: each.offset for each in own}


@pytest.mark.parametrize("schema", [None, pyarrow.schema([("n", pyarrow.int64())])], ids=["rows", "columns"])
def test_records_of_killed_tasks_and_of_a_killed_broker_and_of_new_partitions_count_once(
    tmp_path: Path, broker: KafkaServer, schema: Any
) -> None:
    piping = Piping(tmp_path, broker, schema)
    with piping.job().start() as handle:
        piping.produce(2)
        piping.wait(handle)
        victim = next(task for task in handle.status().tasks if task.name.startswith("numbers"))
        os.kill(victim.pid, signal.SIGKILL)
        piping.produce(2)
        admin = broker.admin()
        admin.create_partitions([NewPartitions(piping.given, 3)])[piping.given].result()
        broker.kill()
        broker.start()
        piping.produce(3)
        piping.wait(handle)
        deadline, waiting = time.monotonic() + LIMIT_S, threading.Event()
        while piping.group_offsets() != {0: 3 * STEP, 1: 3 * STEP, 2: STEP}:
            assert time.monotonic() < deadline, piping.group_offsets()
            waiting.wait(0.2)
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    piping.produce(3)
    with piping.job().start(resume=True) as handle:
        piping.wait(handle)
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    await_blocked_calls(broker)
    assert Counter(piping.numbers()) == Counter(range(piping.written))

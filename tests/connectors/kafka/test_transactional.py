"""The transactional Kafka sink on a real broker: rows of complete checkpoints, each once."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, kafka
from clonos.connectors.kafka.transactional import TransactionalKafkaSink
from clonos.connectors.kit.external_system import NumberLost
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.options import Options
from clonos.operators.connector_contract import WriterContext
from clonos_services import random
from tests.connectors.kafka.producing import await_blocked_calls, committed
from tests.connectors.servers.kafka import KafkaServer
from tests.processes.harness.drawing_job import is_quiescent, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
STEP = 300


def header_of(sink: str, _row: Any) -> dict[str, str]:
    """Says which sink has written a row."""
    return {"sink": sink}


class CommittingJob:
    """source x 2 -> draw -> two sinks into one topic, transactional; the draws are collected too."""

    def __init__(self, folder: Path, broker: KafkaServer, topic: str) -> None:
        self.broker, self.topic, self.folder = broker, topic, folder
        self.gate, self.reach = Gate(folder / "gate"), 0
        self.collected: Any = None
        broker.create_topic(topic, 2)

    def graph(self) -> JobGraph:
        """A new description of the same job."""
        graph, self.collected = JobGraph("committing"), collect()
        drawn = graph.source(GatedNumbers(self.gate), parallelism=2, name="numbers").map(
            lambda n: {"n": n, "draw": random.getrandbits(30)}, parallelism=2, name="draw"
        )
        for name in ("first", "second"):
            sink = kafka.sink(
                self.topic, servers=self.broker.servers, mode="transactional", headers=partial(header_of, name)
            )
            drawn.sink(sink, name=name)
        drawn.sink(self.collected, name="collected")
        return graph

    def advance(self) -> None:
        self.reach += STEP
        self.gate.open_to(self.reach)

    def rows(self) -> dict[str, list[tuple[int, int]]]:
        """Numbers and draws by sink."""
        found: dict[str, list[tuple[int, int]]] = {"first": [], "second": []}
        for message in committed(self.broker, self.topic):
            row = json.loads(message.value())
            found[dict(message.headers())["sink"].decode()].append((row["n"], row["draw"]))
        return {sink: sorted(rows) for sink, rows in found.items()}

    def wait_for_rows(self, job: RunningJob) -> None:
        job.wait_for(lambda _: len(self.rows()["second"]) == 2 * self.reach)


def kill_all(job: RunningJob) -> None:
    """SIGKILL to all slots at one moment: the job rolls back."""
    before = job.incarnations()
    for pid in job.driver.ask(lambda coordinator: [register.pid for register in coordinator.slots]):
        os.kill(pid, signal.SIGKILL)
    wait_for_successors(job, before, *before)


def test_kills_of_all_tasks_and_of_the_broker_and_a_resume_leave_each_row_once(
    tmp_path: Path, broker: KafkaServer
) -> None:
    committing = CommittingJob(tmp_path, broker, "committing")
    with running(committing.graph(), tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        committing.advance()
        wait_for_checkpoint(job)
        committing.advance()
        kill_all(job)
        committing.advance()
        broker.kill()
        broker.start()
        committing.wait_for_rows(job)
        committing.advance()
        wait_for_checkpoint(job)
        first = list(committing.collected.rows)
    with running(committing.graph(), tmp_path, OPTIONS, parallelism=2, resume=True) as job:
        committing.advance()
        committing.gate.end(committing.reach)
        assert isinstance(job.end(), JobDone)
        second = list(committing.collected.rows)
    await_blocked_calls(broker)
    rows = committing.rows()
    assert rows["first"] == rows["second"]
    assert [n for n, _ in rows["first"]] == list(range(2 * committing.reach))
    collected = {row["n"]: row["draw"] for row in first + second}
    assert dict(rows["first"]) == collected


def sink_of(broker: KafkaServer, topic: str) -> TransactionalKafkaSink:
    made = kafka.sink(topic, servers=broker.servers, mode="transactional", key=lambda row: "k")
    assert isinstance(made, TransactionalKafkaSink)
    return made


def part(sink: TransactionalKafkaSink, checkpoint: int, rows: list[Any], index: int = 0) -> bytes:
    writer = sink.writer()
    writer.open(WriterContext("job", f"out/{index}", index, 1, 1))
    writer.write(rows)
    prepared = writer.prepare(checkpoint)
    assert prepared is not None
    return prepared


def test_a_repeated_commit_writes_nothing_in_the_same_driver_and_in_a_later_one(broker: KafkaServer) -> None:
    topic = broker.create_topic("repeated")
    sinks = [sink_of(broker, topic), sink_of(broker, topic)]
    sinks[0].prepare_output(topic, resume=False, overwrite=False)
    parts = [part(sinks[0], 1, ["a"]), part(sinks[0], 2, ["b", None])]
    for sink in [sinks[0], *sinks]:
        sink.commit(topic, 2, parts)
    sinks[1].commit(topic, 3, [part(sinks[1], 3, ["c"]), part(sinks[1], 3, ["d"], index=1)])
    for sink in sinks:
        sink.commit(topic, 2, parts)
        sink.close_output()
    values = [message.value() for message in committed(broker, topic)]
    assert values == [b"a", b"b", None, b"c", b"d"]


def test_output_that_needs_a_longer_transaction_goes_out_in_a_new_session(broker: KafkaServer) -> None:
    topic = broker.create_topic("larger")
    sink = sink_of(broker, topic)
    sink.prepare_output(topic, resume=False, overwrite=False)
    large = ["x" * 700_000] * 40
    for checkpoint, rows in enumerate((["a"], large, ["b"]), 1):
        sink.commit(topic, checkpoint, [part(sink, checkpoint, rows)])
    sink.close_output()
    assert [message.value() for message in committed(broker, topic)] == [b"a", *[row.encode() for row in large], b"b"]


def test_numbers_that_have_expired_stop_a_resumed_job_before_it_writes_rows_again(broker: KafkaServer) -> None:
    topic = broker.create_topic("expired-numbers")
    sink, resumed = sink_of(broker, topic), sink_of(broker, topic)
    sink.prepare_output(topic, resume=False, overwrite=False)
    parts = [part(sink, 1, ["a"])]
    sink.commit(topic, 1, parts)
    sink.close_output()
    admin = broker.admin()
    groups = [f"clonos-{topic}-errors/{what}/committed" for what in ("0", "start")]
    for deleted in admin.delete_consumer_groups(groups).values():
        deleted.result()
    with pytest.raises(NumberLost, match=r"offsets\.retention\.minutes"):
        resumed.commit(topic, 1, parts)
    resumed.close_output()
    assert len(committed(broker, topic)) == 1

"""A history and then a topic, while tasks die in either half and at the cut, and drivers are succeeded in both."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from clonos import LateCut, files, kafka, values
from clonos.api.graph import JobGraph
from clonos.connectors.kit.history import HistorySource
from clonos.core.model.options import Options
from tests.connectors.kafka.producing import produce
from tests.connectors.servers.kafka import KafkaServer
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

HISTORY = 400
LIVE = 400
PARTITIONS = 2
OPTIONS = Options(checkpoint_every_ms=300, heartbeat_ms=50)


class GatedHistory(GatedNumbers, HistorySource):
    """Numbers that end."""


def book(key: int, last: int | None, number: int) -> tuple[int, dict[str, Any]]:
    """Emits each number with its predecessor under its key."""
    return number, {"n": number, "last": last}


class Continued:
    """numbers, then a topic -> by key, in order -> files."""

    def __init__(self, folder: Path, broker: KafkaServer) -> None:
        self.folder, self.broker = folder, broker
        self.gate, self.topic = Gate(folder / "gate"), broker.create_topic("continued", PARTITIONS)

    def graph(self) -> JobGraph:
        """A new description of the same job."""
        graph = JobGraph("continued")
        live = kafka.source(self.topic, servers=self.broker.servers, decode=int, start="earliest")
        numbers = graph.source(GatedHistory(self.gate).then(live), name="numbers")
        booked = numbers.key_by(lambda number: number % PARTITIONS).stateful_map(book, name="book", parallelism=2)
        booked.sink(files.jsonl(self.folder / "out"), name="out")
        return graph

    def produce(self, first: int, end: int) -> None:
        """Numbers to the partitions of their keys."""
        for partition in range(PARTITIONS):
            produce(self.broker, self.topic, range(first + partition, end, PARTITIONS), partition)

    def rows(self) -> Iterator[Any]:
        """Committed rows."""
        return iter(files.read_committed(self.folder / "out")) if (self.folder / "out").exists() else iter(())

    def wait_for(self, job: RunningJob, count: int) -> None:
        """Until that many rows are committed."""
        job.wait_for(lambda _: sum(1 for _ in self.rows()) >= count)


def kill(job: RunningJob) -> None:
    """SIGKILL to the process of the source, once it lives."""
    job.wait_for(lambda it: bool(it.phases) and set(it.phases.values()) == {"live"})
    os.kill(job.pid_of(0), signal.SIGKILL)


def test_kills_in_both_halves_and_at_the_cut_and_new_drivers_leave_each_row_once_and_in_order(
    tmp_path: Path, broker: KafkaServer
) -> None:
    continued = Continued(tmp_path, broker)
    continued.produce(HISTORY, HISTORY + LIVE // 2)  # waits for the end of the history
    with running(continued.graph(), tmp_path, OPTIONS) as job:
        continued.gate.open_to(HISTORY // 4)
        continued.wait_for(job, HISTORY // 4)
        kill(job)
        continued.gate.open_to(HISTORY // 2)
        continued.wait_for(job, HISTORY // 2)
    with running(continued.graph(), tmp_path, OPTIONS, resume=True) as job:
        continued.gate.end(HISTORY)
        kill(job)
        continued.wait_for(job, HISTORY + LIVE // 2)
        kill(job)
        continued.produce(HISTORY + LIVE // 2, HISTORY + LIVE)
        continued.wait_for(job, HISTORY + LIVE // 2 + 1)
    with running(continued.graph(), tmp_path, OPTIONS, resume=True) as job:
        continued.wait_for(job, HISTORY + LIVE)
    rows = sorted((row["n"], row["last"]) for row in continued.rows())
    assert rows == [(n, n - PARTITIONS if n >= PARTITIONS else None) for n in range(HISTORY + LIVE)]


def cut(broker: KafkaServer, topic: str, start: Any) -> list[bytes]:
    return values([1]).then(kafka.source(topic, servers=broker.servers, decode=int, start=start)).splits(1)


def test_a_cut_whose_records_retention_may_have_removed_is_refused(broker: KafkaServer) -> None:
    topic = broker.create_topic("trimmed")
    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=2)
    for minute in range(10):
        stamp = round((at + timedelta(minutes=minute)).timestamp() * 1_000)
        produce(broker, topic, [minute], timestamp=stamp)
    assert len(cut(broker, topic, "earliest")) == 2
    admin = broker.admin()  # it answers as long as it lives
    (done,) = admin.delete_records([TopicPartition(topic, 0, 5)]).values()
    done.result()
    for late in ("earliest", {0: 4}, at, at + timedelta(minutes=5)):
        with pytest.raises(
            LateCut, match="partition 0 of trimmed begins at offset 5, and records after that place may"
        ):
            cut(broker, topic, late)
    for right in ({0: 5}, {0: 10}, at + timedelta(minutes=6), at + timedelta(minutes=60)):
        assert len(cut(broker, topic, right)) == 2


def test_a_cut_in_the_future_is_refused(broker: KafkaServer) -> None:
    with pytest.raises(LateCut, match="is in the future, so that records in front of it may still come"):
        cut(broker, broker.create_topic("future"), datetime.now(UTC) + timedelta(hours=1))

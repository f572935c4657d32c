"""Changes of widths between topics: partitions are dealt anew, and transactions of tasks that end are complete."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clonos import kafka
from clonos.job import Job
from tests.connectors.kafka.producing import committed, produce
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.width_changes import LIMIT_S, run_at, wait_until

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

ROWS, PARTITIONS = 120, 3


def test_rows_of_topics_come_once_in_transactions_over_changes_of_the_widths_of_both(
    broker: KafkaServer, tmp_path: Path
) -> None:
    """A topic that appears while the job is down is found by one task. At last another job goes on from a savepoint."""
    target, written = broker.create_topic("changed-widths", 2), 0
    topics = [broker.create_topic("widths-0", PARTITIONS)]

    def job(store: str = "store") -> Job:
        job = Job("widths", slots="process", checkpoint_every="100ms", store=tmp_path / store, parallelism=4)
        source = kafka.source(re.compile(r"widths-\d"), servers=broker.servers, decode=int, watch="100ms")
        rows = job.source(source, name="read").rebalance().map(lambda n: {"n": n}, name="row")
        rows.sink(kafka.sink(target, servers=broker.servers, mode="transactional"), name="write")
        return job

    def write() -> None:
        nonlocal written
        places = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
        for place, (topic, partition) in enumerate(places):
            produce(broker, topic, range(written + place, written + ROWS, len(places)), partition)
        written += ROWS

    def found() -> list[int]:
        return sorted(json.loads(message.value())["n"] for message in committed(broker, target))

    for width in (4, 2, 4):
        write()
        run_at(job(), (f"read={width}", f"write={width}"), write, lambda: len(found()) >= written)
        assert found() == list(range(written))
        topics.append(broker.create_topic(f"widths-{len(topics)}", PARTITIONS))

    place, before = str(tmp_path / "savepoint"), written
    with job().start(resume=True) as handle:
        handle.stop(savepoint=place)
        handle.wait(LIMIT_S)
    assert found() == list(range(before))
    write()
    with job("another-store").start(from_savepoint=place, widths=("read=2", "write=3")) as handle:
        wait_until(lambda: len(found()) >= written)
        handle.stop()
        handle.wait(LIMIT_S)
    assert found() == list(range(written))

"""A job that reads Kafka in event time: timestamps of the messages, a watermark per partition, an error output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clonos.api.windows import Tumbling
from clonos.connectors import collect, kafka
from clonos.connectors.kafka.kafka_errors import UnknownTopic
from clonos.job import Job
from tests.connectors.kafka.producing import produce
from tests.connectors.servers.kafka import KafkaServer

pytestmark = pytest.mark.connectors

NOON_MS = 1_700_000_000_000 // 60_000 * 60_000


def test_windows_take_the_timestamps_of_messages_and_bad_bytes_are_set_aside(
    tmp_path: Path, broker: KafkaServer
) -> None:
    topic = broker.create_topic("event-time", 3)
    for partition in range(2):  # the third one stays empty and holds nothing back
        for second in range(60):
            record = json.dumps({"second": second})
            produce(broker, topic, [record], partition, timestamp=NOON_MS + 1_000 * second)
    produce(broker, topic, ["{"], 1, timestamp=NOON_MS)
    counts, errors = collect(), collect()
    job = Job("event_time", slots="process", parallelism=2, store=tmp_path / "store", errors=errors)
    source = kafka.source(topic, servers=broker.servers, decode=json.loads, until="latest", out_of_order="1s")
    records = job.source(source, name="records")
    records.window(Tumbling("20s")).count(name="count").sink(counts)
    job.run()
    assert [window.value for window in counts.rows] == [40, 40, 40]
    (refused,) = errors.rows
    where = "offset 60 of partition 1 of the topic event-time"
    assert f"{where}: loads cannot decode this record: JSONDecodeError" in refused.error
    assert refused.record.value == b"{"


def test_a_missing_topic_of_the_sink_refuses_the_job_before_it_begins(tmp_path: Path, broker: KafkaServer) -> None:
    topic = broker.create_topic("given")
    job = Job("missing", slots="process", store=tmp_path / "store")
    records = job.source(kafka.source(topic, servers=broker.servers, until="latest"), name="records")
    records.sink(kafka.sink("gone", servers=broker.servers, value="value"), name="out")
    with pytest.raises(UnknownTopic, match="has no topic 'gone'"):
        job.run()

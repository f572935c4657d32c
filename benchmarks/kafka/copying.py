"""Two programs that copy a topic: a job, and a loop over the client library that does the same work.

Both read committed records only and write transactions of at most 5,000 records with the offset after them. The loop
has no tasks, no log and no checkpoints; it survives nothing but its own restart.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from clonos import Job, kafka

BATCH: Final = 5_000
LIMIT_S: Final = 300.0


def job(folder: Path, servers: str, given: str, results: str, *, is_bounded: bool) -> Job:
    """Returns a job that copies values from one topic to another."""
    copying = Job("copying", slots="process", parallelism=1, checkpoint_every="1s", store=folder / "store")
    source: Any = kafka.source(given, servers=servers, decode=bytes, until="latest" if is_bounded else None)
    copying.source(source, name="given").sink(kafka.sink(results, servers=servers), name="results")
    return copying


def run_job(folder: Path, servers: str, given: str, results: str) -> None:
    """Copies the topic by a job."""
    job(folder, servers, given, results, is_bounded=True).run(overwrite=True)


def run_loop(servers: str, given: str, results: str, name: str) -> None:
    """Copies the topic by a loop: records are read, written in a transaction, and their offset with them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0, "retry.backoff.ms": 4})
    producer.init_transactions(LIMIT_S)
    consumer.assign([TopicPartition(given, 0, 0)])
    has_ended = False
    while not has_ended:
        messages: list[Any] = [
            message for message in consumer.consume(BATCH, 0.02) if not (has_ended := is_end(message))
        ]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(results, message.value())
        producer.send_offsets_to_transaction(
            [TopicPartition(given, 0, messages[-1].offset() + 1)], consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
    consumer.close()


def is_end(message: Any) -> bool:
    """Returns whether a message is the end of the partition. Raises: RuntimeError: it is another error."""
    error = message.error()
    if error is not None and error.name() != "_PARTITION_EOF":
        raise RuntimeError(str(error))
    return error is not None


def fill(servers: str, topic: str, count: int, value: bytes) -> None:
    """Writes equal records. Raises: RuntimeError: the broker does not take them in time."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 200_000})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(LIMIT_S):
        raise RuntimeError(f"{topic} was not filled within {LIMIT_S:g} s")


def rate(servers: str, topic: str, count: int) -> float:
    """Returns how many records a second were written, from the first one to the last, by their timestamps.

    Raises: RuntimeError: the topic has another number of records.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "rate",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    times: list[int] = []
    deadline = time.monotonic() + LIMIT_S
    has_ended = False
    while not has_ended and time.monotonic() < deadline:
        messages = consumer.consume(BATCH, 0.2)
        times += [message.timestamp()[1] for message in messages if not (has_ended := is_end(message))]
    consumer.close()
    if len(times) != count:
        raise RuntimeError(f"{topic} has {len(times)} records in place of {count}")
    return count / max(1, max(times) - min(times)) * 1_000

"""Records in topics, and what readers with `read_committed` see of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tests.connectors.servers.kafka import KafkaServer
from tests.speed import scaled

LIMIT_S = scaled(60.0)


def produce(server: KafkaServer, topic: str, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
    """Writes values: bytes and None as they are, others as text."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.servers, "linger.ms": 5})
    for value in values:
        producer.produce(topic, _encoded(value), partition=partition, **more)
    assert producer.flush(LIMIT_S) == 0


def _encoded(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def trim(server: KafkaServer, topic: str, offsets: Mapping[int, int]) -> None:
    """Removes the records in front of an offset of each partition, as retention does."""
    from confluent_kafka import TopicPartition

    admin = server.admin()  # it answers as long as it lives
    for done in admin.delete_records([TopicPartition(topic, *place) for place in offsets.items()]).values():
        done.result()


def await_blocked_calls(server: KafkaServer) -> None:
    """Waits for the calls of the library that the driver has left behind, because they ignore their timeout.

    Such a call ends when a connection is closed, so the server is restarted if it does not end before.
    """
    for thread in threading.enumerate():
        if thread.name == "kafka transaction":
            thread.join(LIMIT_S / 2)
            if thread.is_alive():
                server.kill()
                server.start()
            thread.join(LIMIT_S)
            assert not thread.is_alive(), "a call is blocked although its connections have been closed"


def committed(server: KafkaServer, topic: str, isolation: str = "read_committed") -> list[Any]:
    """Messages of all partitions, each partition up to its present end."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "independent", "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer(
        {"bootstrap.servers": server.servers, "auto.offset.reset": "earliest", "enable.auto.commit": False, **settings}
    )
    try:
        numbers = consumer.list_topics(topic, LIMIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found, unread, deadline = [], set(numbers), time.monotonic() + LIMIT_S
        while unread:
            assert time.monotonic() < deadline, f"the partitions {unread} of {topic} were not read to their ends"
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    unread.discard(message.partition())
        return found
    finally:
        consumer.close()

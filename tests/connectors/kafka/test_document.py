"""The first programs of docs/connectors/kafka.md, run as a reader would run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.connectors.documents import write_programs
from tests.connectors.kafka.producing import committed
from tests.connectors.servers.kafka import KafkaServer
from tests.processes.harness.running_program import run_program
from tests.speed import scaled

pytestmark = pytest.mark.connectors


TOPICS = ("orders", "counts")


def delete_topics(broker: KafkaServer) -> None:
    """Deletes the topics of the document, whose names other tests have too."""
    admin = broker.admin()
    if there := sorted({*TOPICS} & set(admin.list_topics(timeout=scaled(20)).topics)):
        for deleted in admin.delete_topics(there).values():
            deleted.result()


def test_the_counts_of_the_document_are_those_of_the_topic(tmp_path: Path, broker: KafkaServer) -> None:
    bounded = ("decode=json.loads)", 'decode=json.loads, until="latest")')
    write_programs(tmp_path, "kafka", address=("localhost:9092", broker.servers), orders_by_customer=bounded)
    delete_topics(broker)
    try:
        run_program(tmp_path, "prepare.py")
        run_program(tmp_path, "-m", "clonos.cli", "run", "orders_by_customer.py", "--slots", "process")
        rows = [json.loads(message.value()) for message in committed(broker, "counts")]
    finally:
        delete_topics(broker)
    assert sorted(rows) == [["ann", 1], ["ann", 2], ["bob", 1]]

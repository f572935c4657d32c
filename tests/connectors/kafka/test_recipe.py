"""The recipe that reads and writes Kafka, run as its docstring says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clonos import files
from tests.connectors.kafka.producing import committed, produce
from tests.connectors.servers.kafka import KafkaServer
from tests.processes.harness.running_program import run_program
from tests.tidy.source import ROOT

pytestmark = pytest.mark.connectors


def test_the_recipe_writes_the_totals_of_each_customer_and_sets_bad_bytes_aside(
    tmp_path: Path, broker: KafkaServer
) -> None:
    for topic in ("orders", "totals"):
        broker.create_topic(topic, 2)
    orders = [{"customer": f"c{number % 3}", "cents": number} for number in range(300)]
    for partition in range(2):
        produce(broker, "orders", map(json.dumps, orders[partition::2]), partition)
    produce(broker, "orders", ["{"])
    recipe = str(ROOT / "examples" / "kafka_totals.py")
    run_program(tmp_path, "-m", "clonos.cli", "run", recipe, "--slots", "process", KAFKA=broker.servers)
    messages = committed(broker, "totals")
    assert len(messages) == len(orders)
    last = {message.key(): json.loads(message.value()) for message in messages}
    assert {key: (row["cents"], row["orders"]) for key, row in last.items()} == {
        f"c{number}".encode(): (sum(range(number, 300, 3)), 100) for number in range(3)
    }
    assert len(list(files.read_committed(tmp_path / "out" / "refused"))) == 1

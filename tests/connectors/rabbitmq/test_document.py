"""The programs of docs/connectors/rabbitmq.md, run as a reader would run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.connectors.documents import write_programs
from tests.connectors.rabbitmq.messages import taken
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.processes.harness.running_program import run_program

pytestmark = pytest.mark.connectors


def test_the_totals_of_the_document_are_those_of_the_queue(tmp_path: Path, rabbit: RabbitServer) -> None:
    with rabbit.channel() as channel:
        for queue in ("orders", "totals"):
            channel.queue_delete(queue)
    write_programs(tmp_path, "rabbitmq", address=("amqp://guest:guest@127.0.0.1:5672/%2F", rabbit.full_url))
    run_program(tmp_path, "prepare.py")
    run_program(tmp_path, "-m", "clonos.cli", "run", "totals.py", "--slots", "process")
    rows = [json.loads(body) for _, body in taken(rabbit, "totals")]
    assert sorted((row["item"], row["orders"]) for row in rows) == [("jam", 1), ("tea", 1), ("tea", 2)]
    assert taken(rabbit, "orders") == []

"""The job of docs/connectors/rabbitmq.md, run as a reader would run it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.connectors.rabbitmq.messages import declare, publish, taken
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.processes.harness.running_program import run_program
from tests.tidy.source import ROOT

pytestmark = pytest.mark.connectors


def test_the_totals_of_the_document_are_those_of_the_queue(tmp_path: Path, rabbit: RabbitServer) -> None:
    text = (ROOT / "docs" / "connectors" / "rabbitmq.md").read_text("utf-8")
    found = re.search(r"^```python totals\.py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    url = "amqp://guest:guest@127.0.0.1:5672/%2F"
    assert url in found[1]
    (tmp_path / "totals.py").write_text(found[1].replace(url, rabbit.full_url), "utf-8")
    publish(rabbit, declare(rabbit, "orders"), [json.dumps({"item": item}) for item in ("tea", "jam", "tea")])
    declare(rabbit, "totals")
    run_program(tmp_path, "-m", "clonos.cli", "run", "totals.py", "--slots", "process")
    rows = [json.loads(body) for _, body in taken(rabbit, "totals")]
    assert sorted((row["item"], row["orders"]) for row in rows) == [("jam", 1), ("tea", 1), ("tea", 2)]
    assert taken(rabbit, "orders") == []

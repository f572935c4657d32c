"""The job of docs/connectors/nats.md, run as a reader would run it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.connectors.nats.streams import add_stream, found, publish
from tests.connectors.servers.nats import NatsServer
from tests.processes.harness.running_program import run_program
from tests.tidy.source import ROOT

pytestmark = pytest.mark.connectors


def test_the_totals_of_the_document_are_those_of_the_stream(tmp_path: Path, server: NatsServer) -> None:
    text = (ROOT / "docs" / "connectors" / "nats.md").read_text("utf-8")
    program = re.search(r"^```python totals\.py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert program is not None
    url = "nats://127.0.0.1:4222"
    assert url in program[1]
    (tmp_path / "totals.py").write_text(program[1].replace(url, server.full_url), "utf-8")
    add_stream(server, "ORDERS")
    add_stream(server, "TOTALS")
    publish(server, "orders", [json.dumps({"item": item}) for item in ("tea", "jam", "tea")])
    run_program(tmp_path, "-m", "clonos.cli", "run", "totals.py", "--slots", "process")
    rows = [json.loads(body) for _, _, body in found(server, "TOTALS")]
    assert sorted((row["item"], row["orders"]) for row in rows) == [("jam", 1), ("tea", 1), ("tea", 2)]

"""The programs of docs/connectors/redis.md, run as a reader would run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.connectors.documents import write_programs
from tests.connectors.redis.streams import found
from tests.connectors.servers.redis import RedisProcess
from tests.processes.harness.running_program import run_program

pytestmark = pytest.mark.connectors


def test_the_totals_of_the_document_are_those_of_the_stream(tmp_path: Path) -> None:
    with RedisProcess(tmp_path).running() as server:  # of its own: other tests have streams with these keys
        write_programs(tmp_path, "redis", address=("redis://127.0.0.1:6379", server.full_url))
        run_program(tmp_path, "prepare.py")
        run_program(tmp_path, "-m", "clonos.cli", "run", "totals.py", "--slots", "process")
        rows = [json.loads(fields[b"data"]) for _, fields in found(server, "totals")]
    assert sorted((row["item"], row["orders"]) for row in rows) == [("jam", 1), ("tea", 1), ("tea", 2)]

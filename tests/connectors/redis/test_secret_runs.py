"""Runs with a password for Redis write it nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.redis.streams import add_stream, found, publish
from tests.connectors.secret_runs import WRONG, run_with_secret
from tests.connectors.servers.redis import PASSWORD, RedisProcess

pytestmark = pytest.mark.connectors

PROGRAM = """
rows = job.source(redis.source("words", url="{url}", password=PASSWORD, decode=bytes.decode, until="latest"))
rows.sink(redis.sink("copies", url="{url}", password=PASSWORD))
"""


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_run_with_a_password_writes_it_nowhere(tmp_path: Path, server: RedisProcess, password: str) -> None:
    add_stream(server, "words")
    add_stream(server, "copies")
    publish(server, "words", ["to", "be"])
    run = run_with_secret(tmp_path, PROGRAM.format(url=server.url), password)
    assert run.code == (0 if password == PASSWORD else 1), run.shown
    if password == WRONG:
        assert "Redis at redis://127.0.0.1" in run.shown
        assert "invalid username-password pair" in run.shown
    else:
        assert sorted(fields[b"data"] for _, fields in found(server, "copies")) == [b"be", b"to"]
    assert f"127.0.0.1:{server.port}" in run.shown

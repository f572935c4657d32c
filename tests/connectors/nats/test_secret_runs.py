"""Runs with a password for NATS write it nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.nats.streams import add_stream, found, publish
from tests.connectors.secret_runs import WRONG, run_with_secret
from tests.connectors.servers.nats import PASSWORD, NatsServer

pytestmark = pytest.mark.connectors

PROGRAM = """
rows = job.source(nats.source("WORDS", url="{url}", password=PASSWORD, decode=bytes.decode, until="latest"))
rows.sink(nats.sink("copies", url="{url}", password=PASSWORD))
"""


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_run_with_a_password_writes_it_nowhere(tmp_path: Path, server: NatsServer, password: str) -> None:
    add_stream(server, "WORDS")
    add_stream(server, "COPIES")
    publish(server, "words", ["to", "be"])
    run = run_with_secret(tmp_path, PROGRAM.format(url=server.url), password)
    assert run.code == (0 if password == PASSWORD else 1), run.shown
    if password == WRONG:
        assert "NATS at nats://127.0.0.1" in run.shown
        assert "uthorization " in run.shown
    else:
        assert sorted(body for _, _, body in found(server, "COPIES")) == [b"be", b"to"]
    assert f"127.0.0.1:{server.port}" in run.shown

"""Runs with a password for RabbitMQ write it nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.rabbitmq.messages import declare, publish, taken
from tests.connectors.secret_runs import WRONG, run_with_secret
from tests.connectors.servers.rabbitmq import PASSWORD, RabbitServer

pytestmark = pytest.mark.connectors

PROGRAM = """
rows = job.source(rabbitmq.queue("words", url="{url}", password=PASSWORD, decode=bytes.decode, until="empty"))
rows.sink(rabbitmq.exchange("", url="{url}", password=PASSWORD, routing_key="copies"))
"""


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_run_with_a_password_writes_it_nowhere(tmp_path: Path, rabbit: RabbitServer, password: str) -> None:
    publish(rabbit, declare(rabbit, "words"), ["to", "be"])
    declare(rabbit, "copies")
    run = run_with_secret(tmp_path, PROGRAM.format(url=rabbit.url), password)
    assert run.code == (0 if password == PASSWORD else 1), run.shown
    if password == WRONG:
        assert "ACCESS_REFUSED" in run.shown
    else:
        assert sorted(body for _, body in taken(rabbit, "copies")) == [b"be", b"to"]
    assert f"127.0.0.1:{rabbit.port}" in run.shown

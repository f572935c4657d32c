"""Servers that are not there when a job starts are named at the start."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from clonos import postgres, web


@pytest.mark.parametrize(
    "sink",
    [
        lambda port: web.post(f"http://127.0.0.1:{port}/hook"),
        lambda port: postgres.table(f"postgresql://ann@127.0.0.1:{port}/shop", "orders"),
    ],
    ids=["web", "postgres"],
)
def test_a_refused_port_is_reported_at_the_start(sink: Any, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:  # bound, so that nobody else listens there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with caplog.at_level(logging.WARNING, "clonos.run"):
            sink(port).check_start()
    (record,) = caplog.records
    assert f"127.0.0.1:{port}" in record.getMessage()
    assert "cannot be reached now, the job tries on" in record.getMessage()
    assert "refused" in record.getMessage()


def test_a_server_that_listens_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with caplog.at_level(logging.WARNING, "clonos.run"):
            web.post(f"http://127.0.0.1:{listening.getsockname()[1]}/hook").check_start()
    assert caplog.records == []

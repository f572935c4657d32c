"""Runs with a password for a broker of MQTT write it nowhere."""

from __future__ import annotations

import signal
from pathlib import Path
from subprocess import Popen

import pytest

from tests.connectors.mqtt.topics import Observer, observed, publish
from tests.connectors.secret_runs import WRONG, run_with_secret
from tests.connectors.servers.mosquitto import PASSWORD, MosquittoServer

pytestmark = pytest.mark.connectors

PROGRAM = """
rows = job.source(mqtt.source("{topic}", session="{topic}", url="{url}", password=PASSWORD, decode=bytes.decode))
rows.sink(mqtt.sink("copies/{topic}", url="{url}", password=PASSWORD))
"""


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_run_with_a_password_writes_it_nowhere(tmp_path: Path, mosquitto: MosquittoServer, password: str) -> None:
    topic = "secret" if password == PASSWORD else "wrong"

    def act(process: Popen[str]) -> None:
        if password == PASSWORD:
            publish(mosquitto, topic, ["to", "be"], retain=True)
            seen.wait(1)
            process.send_signal(signal.SIGINT)

    seen: Observer
    with observed(mosquitto, f"copies/{topic}") as seen:
        run = run_with_secret(tmp_path, PROGRAM.format(topic=topic, url=mosquitto.url), password, act)
    assert run.code == (0 if password == PASSWORD else 1), run.shown
    if password == WRONG:
        assert "MQTT at mqtt://127.0.0.1" in run.shown
        assert "Not authorized" in run.shown
    else:
        assert b"be" in {payload for _, payload in seen.messages}
    assert f"127.0.0.1:{mosquitto.port}" in run.shown

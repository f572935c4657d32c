"""A Prometheus on loopback: Debian's package, one process, its data in a folder of the test."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.connectors.servers.fetch import BrokerMissing, install
from tests.connectors.servers.server_process import ServerProcess
from tests.speed import scaled

NAME = "Prometheus"
CONFIGURATION = """global:
  scrape_interval: 500ms
  evaluation_interval: 500ms
rule_files: [{rules}]
scrape_configs:
  - job_name: clonos
    honor_labels: true
    static_configs:
      - targets: [{targets}]
"""


def program(name: str = "prometheus") -> str | None:
    """A program of the package."""
    return shutil.which(name, path="/usr/bin:/usr/local/bin")


def is_there() -> bool:
    """Whether the server and its tool are installed."""
    return program() is not None and program("promtool") is not None


def fetch() -> None:
    """Installs Debian's package; its service is not started."""
    install("prometheus", "The tests of metrics start Prometheus", RUNLEVEL="1")


def promtool(*arguments: str | Path, text: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """What the tool of the package says."""
    found = program("promtool")
    if found is None:
        raise BrokerMissing(NAME)
    return subprocess.run([found, *arguments], input=text, capture_output=True, check=False, timeout=60)


class PrometheusServer(ServerProcess):
    """A server that scrapes ``targets`` twice per second and evaluates ``rules``."""

    name = NAME

    def __init__(self, folder: Path, targets: Sequence[str], rules: Sequence[Path] = ()) -> None:
        found = program()
        if found is None:
            raise BrokerMissing(NAME)
        self._program, self.folder = found, folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        text = CONFIGURATION.format(rules=json.dumps([*map(str, rules)])[1:-1], targets=json.dumps([*targets])[1:-1])
        (folder / "prometheus.yml").write_text(text, "utf-8")

    def get(self, path: str, **parameters: str) -> Any:
        """What the API answers."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=scaled(20)) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample that an expression gives now."""
        found = self.get("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def answers(self) -> bool:
        """Whether the server is ready."""
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=scaled(5)):
            return True
        return False

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [self._program, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        command.append(f"--web.listen-address=127.0.0.1:{self.port}")
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def serve(folder: Path) -> None:
    """Runs a server for a user's own trial, which scrapes port 9464, until it is interrupted."""
    server = PrometheusServer(folder, ["127.0.0.1:9464"])
    server.serve(f"http://127.0.0.1:{server.port}")

"""The tutorial: its commands and files, as they are on the page, and its kill in a real Chromium.

The test has an environment, so it leaves the installation out, and sets the slots that a reader gets; and it gives the
server a port of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clonos.cli.server_client import ServerClient
from tests.processes.harness.running_program import ENVIRONMENT
from tests.processes.harness.running_server import RunningServer, wait_for
from tests.processes.page.conftest import Tab
from tests.tidy.source import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]

TEXT = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
COMMANDS_MAX = 10


def _commands() -> list[str]:
    """The commands of the page, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


class Reader:
    """A reader of the page in a folder. ``run`` gives a command to the shell."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        programs = folder / "bin"
        programs.mkdir()
        clonos = programs / "clonos"
        clonos.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m clonos.cli "$@"\n', "utf-8")
        clonos.chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        # A reader who follows the page has no PySpark.
        self.variables = os.environ | ENVIRONMENT | {"PATH": path, "CLONOS_SERVER": self.url, "CLONOS_SLOTS": "process"}
        for name, content in re.findall(r"^```python (\S+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
            (folder / name).write_text(content, "utf-8")

    def run(self, command: str) -> str:
        """Runs a command to its end; returns its standard output."""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    @contextmanager
    def serving(self, command: str) -> Iterator[ServerClient]:
        """Context in which the server of the page runs; its end leaves no driver."""
        log = self.folder / "server.log"
        with log.open("wb") as output:
            server = subprocess.Popen(shlex.split(command), cwd=self.folder, env=self.variables, stderr=output)
        try:
            wait_for(lambda: "listens on" in log.read_text("utf-8"), "the server")
            client = ServerClient(self.url, f"@{self.folder}/.clonos-server/token")
            yield client
            client.close()
        finally:
            server.kill()
            server.wait()
            RunningServer(self.folder / ".clonos-server").close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    files = sorted(folder.glob(f".clonos-server/jobs/*/files/{name}/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def _kill_on_the_page(tab: Tab, url: str, token: str, client: ServerClient, job: str) -> None:
    tab.open(url)
    tab.one("#field-token").send_keys(token)
    tab.one("dialog button[type=submit]").click()
    tab.one("tr td:first-child a").click()
    tab.one('tr[data-task="count-row/0"] button.is-danger').click()
    tab.one('.recovery[data-task="count-row/0"]')

    def is_over() -> bool:
        found = client.get(f"/jobs/{job}/recoveries")["recoveries"]
        return any(each["task"] == "count-row/0" and each["is_over"] for each in found)

    wait_for(is_over, "the end of the recovery")


def test_a_reader_of_the_tutorial_gets_every_number_of_a_word_once_over_a_kill_and_a_change_of_the_code(
    tmp_path: Path, tab: Tab
) -> None:
    commands = _commands()
    assert len(commands) <= COMMANDS_MAX
    install, serve, export, submit, status, stop, submit_2, stop_2, list_files, show = commands
    assert install.endswith("pip install '../clonos[server]'")
    reader = Reader(tmp_path, port := _free_port())
    name, _, value = export.removeprefix("export ").partition("=")
    with reader.serving(f"{serve} --port {port}") as client:
        reader.variables[name] = value
        job = reader.run(submit).strip()
        wait_for(lambda: client.get(f"/jobs/{job}")["status"] == "RUNNING", "the job")
        assert "count-row/0" in reader.run(status)
        token = (tmp_path / ".clonos-server" / "token").read_text("utf-8").strip()
        _kill_on_the_page(tab, reader.url, token, client, job)
        reader.run(stop)
        assert {task["phase"] for task in client.get(f"/jobs/{job}/status")["tasks"]} == {"ended"}
        job_2 = reader.run(submit_2).strip()
        seen = len(_rows(tmp_path, "counts"))
        wait_for(lambda: len(_rows(tmp_path, "counts")) > seen and _rows(tmp_path, "letters"), "output of the next job")
        reader.run(stop_2)
        assert client.get(f"/jobs/{job_2}")["status"] == "FINISHED"
        assert "letters" in reader.run(list_files)
        shown = [json.loads(line) for line in reader.run(show).splitlines()]
    assert sorted(row["count"] for row in shown) == list(range(1, len(shown) + 1))
    numbers = Counter((row["word"], row["count"]) for row in _rows(tmp_path, "counts"))
    assert max(numbers.values()) == 1
    letters = sorted(row["count"] for row in _rows(tmp_path, "letters") if row["letter"] == "q")
    assert letters == list(range(1, len(letters) + 1))
    assert 0 < len(letters) < len(shown)

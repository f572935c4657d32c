"""``clonos run --ui`` and ``clonos demo --ui``: the page is there while the job runs, and goes with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from clonos.cli import ENDED, ENVIRONMENT_AT_FAULT, JOB_AT_FAULT
from clonos.server.job_api.server_thread import LOOPBACK, listen_tcp
from tests.processes.harness.running_program import ENVIRONMENT
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(60.0)
ENDLESS = """
from clonos import Job
from clonos.connectors import files, values

job = Job("endless", slots="process", checkpoint_every="300ms")
job.source(files.lines("in/*.txt", watch="100ms")).sink(files.jsonl("out"))
"""
PAGE = re.compile(r"page[^\n]*: (http://127\.0\.0\.1:\d+)/#token=(\S+)")


@contextmanager
def _started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "clonos.cli", *arguments],
        cwd=folder,
        env=os.environ | ENVIRONMENT | {"COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _page_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Reads what the command prints up to the address of the page; returns it and its token."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if found := PAGE.search(line):
            return found[1], found[2]
    raise AssertionError(f"no page: {text}")


def _ask(base: str, token: str, path: str, body: object = None) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(base + path, data, headers), timeout=scaled(20)) as answer:
        return json.load(answer)


def _write_job(folder: Path) -> None:
    (folder / "job.py").write_text(ENDLESS, "utf-8")
    (folder / "in").mkdir()
    (folder / "in" / "one.txt").write_text("a\nb\n", "utf-8")


def test_a_job_run_with_ui_has_a_page_until_it_is_stopped_there(tmp_path: Path) -> None:
    _write_job(tmp_path)
    with _started(tmp_path, "run", "job.py", "--ui", "--ui-port", "0") as process:
        base, token = _page_of(process)
        with urllib.request.urlopen(f"{base}/", timeout=scaled(20)) as page:
            assert b"<title>Clonos</title>" in page.read()
        (job,) = _ask(base, token, "/api/v1/jobs")["jobs"]
        assert job["name"] == "endless"
        while job["status"] == "CREATED":
            (job,) = _ask(base, token, "/api/v1/jobs")["jobs"]
        assert _ask(base, token, f"/api/v1/jobs/{job['id']}/stop", {}) == {
            "accepted": True,
            "savepoint": None,
            "tasks": [],
            "epoch": None,
            "widths": {},
            "number": 0,
        }
        output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == ENDED, output
        assert "was stopped with a final checkpoint" in output
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{base}/", timeout=scaled(20))


@pytest.mark.parametrize(
    ("step", "status", "code"), [("str.upper", "FINISHED", ENDED), ("int", "FAILED", JOB_AT_FAULT)]
)
def test_the_page_of_a_job_that_has_ended_stays_until_an_interrupt(
    tmp_path: Path, step: str, status: str, code: int
) -> None:
    _write_job(tmp_path)
    text = ENDLESS.replace(', watch="100ms"', "").replace(".sink", f".map({step}).sink")
    (tmp_path / "job.py").write_text(text, "utf-8")
    with _started(tmp_path, "run", "job.py", "--ui", "--ui-port", "0") as process:
        base, token = _page_of(process)
        assert process.stdout is not None
        while "its page stays until Ctrl-C" not in process.stdout.readline():
            assert process.poll() is None
        (job,) = _ask(base, token, "/api/v1/jobs")["jobs"]
        assert job["status"] == status
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code, output


def test_a_taken_port_is_an_error_before_anything_was_started(tmp_path: Path) -> None:
    _write_job(tmp_path)
    with closing(listen_tcp(LOOPBACK, 0)) as other:
        port = str(other.getsockname()[1])
        with _started(tmp_path, "run", "job.py", "--ui", "--ui-port", port) as process:
            output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == ENVIRONMENT_AT_FAULT
    assert f"the page cannot be served at 127.0.0.1:{port}: Address already in use" in output
    assert not (tmp_path / ".clonos").exists()


def test_a_port_without_the_page_is_refused(tmp_path: Path) -> None:
    with _started(tmp_path, "demo", "--slots", "process", "--ui-port", "8090") as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, output) == (
        JOB_AT_FAULT,
        "clonos: --ui-port is the port of the page of the job, which --ui serves: add --ui.\n",
    )


def test_a_demo_with_a_page_kills_what_its_user_kills_and_judges_the_output_after_a_stop(tmp_path: Path) -> None:
    arguments = ("demo", "--slots", "process", "--ui", "--ui-port", "0", "--lines", "3000", "--json", "verdict.json")
    with _started(tmp_path, *arguments) as process:
        base, token = _page_of(process)
        (job,) = _ask(base, token, "/api/v1/jobs")["jobs"]
        path = f"/api/v1/jobs/{job['id']}"
        headers = {"Authorization": f"Bearer {token}"}
        with urllib.request.urlopen(urllib.request.Request(f"{base}{path}/events", headers=headers)) as events:
            is_killed = False
            for line in events:
                if not line.startswith(b'data: {"job"'):
                    continue
                status = json.loads(line.removeprefix(b"data: "))
                if not is_killed and status["job"]["checkpoint"] and all(task["standbys"] for task in status["tasks"]):
                    is_killed = bool(_ask(base, token, f"{path}/kill", {"task": "ask/0"})["accepted"])
                if any(recovery["duration_ms"] is not None for recovery in status["recoveries"]):
                    break
        assert _ask(base, token, f"{path}/stop", {})["accepted"]
        output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == ENDED, output
    verdict = json.loads((tmp_path / "verdict.json").read_text("utf-8"))
    assert (verdict["lost"], verdict["duplicated"], verdict["contradicted"]) == (0, 0, 0)
    assert verdict["records"] > 0

"""Interrupted benchmarks leave no process and no file except their results after."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness import isolated_run
from tests.speed import scaled
from tests.tidy.source import PACKAGE_FOLDERS

pytestmark = pytest.mark.processes
PROCESSES_MIN = 6  # the benchmark, its nursery, slots
LIMIT_S = scaled(30)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Names of sockets have a hundred bytes: pytest's own folders are too deep."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_signal_to_the_command_ends_its_benchmark_and_every_process_it_started(
    tmp_path: Path, short_folder: Path
) -> None:
    found = tmp_path / "found.json"
    path = os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())
    command = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "latency", "--quick", "--json", str(found)],
        cwd=isolated_run.ROOT,
        env=os.environ | {"PYTHONPATH": path, isolated_run.MARK: str(short_folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    waiting = threading.Event()
    while command.poll() is None and len(isolated_run.started_for(str(short_folder))) < PROCESSES_MIN:
        waiting.wait(0.02)
    command.send_signal(signal.SIGTERM)
    errors = command.communicate(timeout=LIMIT_S)[1]
    assert command.returncode == 128 + signal.SIGTERM, errors
    assert "interrupted by SIGTERM: the running benchmark was ended" in errors
    assert isolated_run.started_for(str(short_folder)) == []
    assert list(short_folder.iterdir()) == []
    assert json.loads(found.read_text("utf-8"))["failed"] == {"latency": "interrupted"}

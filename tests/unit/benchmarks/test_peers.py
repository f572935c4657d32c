"""Peer systems: an uninstalled one is missing, a broken one has failed, and neither leaves files after."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import Measured
from benchmarks.measures import throughput
from benchmarks.peers import running
from benchmarks.workloads import words


def _workload(folder: Path) -> words.Workload:
    words.prepare(folder)
    return words.Workload(str(folder))


def _install_without_packages(folder: Path) -> None:
    python = folder / "bytewax/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', "utf-8")
    python.chmod(0o700)


def test_a_peer_that_is_not_installed_is_reported_as_not_run(tmp_path: Path) -> None:
    with pytest.raises(running.PeerMissing, match="benchmarks/peers/setup bytewax makes it"):
        running.run("bytewax", _workload(tmp_path), environments=tmp_path / "nothing")


def test_a_peer_without_java_is_reported_as_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark/bin").mkdir(parents=True)
    (tmp_path / "spark/bin/python").touch()
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(running.PeerMissing, match="needs Java"):
        running.run("spark-native", _workload(tmp_path), environments=tmp_path)


def test_a_peer_that_fails_is_reported_at_the_end(tmp_path: Path) -> None:
    _install_without_packages(tmp_path)
    workload = _workload(tmp_path)
    before = sorted(tmp_path.iterdir())
    session = Session(("bytewax",), pairs=1)
    ours = Measured(1, 1.0, 0.0, 1.0)
    throughput.against_peer(session, Path(workload.folder), "rows", lambda: ours, "bytewax", environments=tmp_path)
    assert session.failed == {"rows/bytewax": "PeerFailed: ModuleNotFoundError: No module named 'bytewax'"}
    assert (session.not_run, session.comparisons) == ({}, [])
    assert sorted(tmp_path.iterdir()) == before

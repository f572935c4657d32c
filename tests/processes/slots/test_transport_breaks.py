"""Connections break and come back while a job runs: no process dies, no task is replaced, no record is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.options import Options
from tests.processes.harness.cutting_proxy import through_proxy
from tests.processes.harness.drawing_job import DrawingJob, is_quiescent, wait_for_checkpoint
from tests.processes.harness.running_job import running

pytestmark = pytest.mark.processes

CUTS = 5
OPTIONS = Options(checkpoint_every_ms=100, heartbeat_ms=400, lease_ms=20_000)
"""A slot is gone if it is not heard for three heartbeats after its connection broke, also if it had no processor."""


def test_all_connections_of_all_slots_break_repeatedly_without_a_lost_record(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2, tcp=True, rewriter=through_proxy) as job:
        job.wait_for(is_quiescent)
        before, pids = job.incarnations(), sorted(job.provider.pids().values())
        reach = 0
        for _ in range(CUTS):
            reach = drawing.advance(reach)
            for pid in pids:
                os.kill(pid, signal.SIGUSR1)
            wait_for_checkpoint(job)
        assert job.incarnations() == before
        assert sorted(job.provider.pids().values()) == pids
        drawing.gate.end(reach)
        assert isinstance(job.end(), JobDone)
    drawing.check(reach)

"""A large state is encoded while records flow: no checkpoint waits for it, and a death in between loses nothing."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.io.store.object_files import LocalFiles
from clonos_chaos.real.fault_point_server import FaultPointServer
from tests.processes.harness.drawing_job import is_quiescent, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import LIMIT_S, RunningJob, running

pytestmark = pytest.mark.processes

KEYS = 200
STEP = 2 * KEYS
HELD = TaskId(1)
"""The task after the exchange, which keeps lists."""


def keep(_key: int, held: list[bytes] | None, n: int) -> tuple[list[bytes], tuple[int, int]]:
    """A list of 500 bytes a record, changed in place; which record of its key this is."""
    held = held if held is not None else []
    held.append(n.to_bytes(500, "big"))
    return held, (n, len(held))


def advance(job: RunningJob, gate: Gate, reach: int) -> None:
    """Records flow, and checkpoints complete after them."""
    gate.open_to(reach)
    for _ in range(3):
        wait_for_checkpoint(job)


def whole_states(store: Path) -> list[int]:
    """Numbers of the snapshots that have all of the state."""
    wholes = [name for name in LocalFiles(store).list("objects") if f"/{HELD}/" in name and name.endswith("-full")]
    return [int(name.rpartition("/")[2].partition("-")[0]) for name in wholes]


@pytest.mark.parametrize("point", ["whole state begun", "whole state written"])
def test_a_task_that_dies_while_its_full_state_is_written_loses_nothing(tmp_path: Path, point: str) -> None:
    gate, output = Gate(tmp_path / "gate"), collect()
    graph = JobGraph("lists")
    graph.source(GatedNumbers(gate)).key_by(lambda n: n % KEYS).stateful_map(keep, name="lists").sink(output)
    options = Options(checkpoint_every_ms=100, standbys=0, snapshot_chain_max=2, snapshot_inline_bytes=1)
    with (
        FaultPointServer() as fault_point_server,
        running(graph, tmp_path, options, fault_points=fault_point_server.address, domains=2, slots_needed=4) as job,
    ):
        job.wait_for(is_quiescent)
        pause_point = fault_point_server.set_breakpoint(point, "lists/0", nth=2)
        advance(job, gate, STEP)
        pause_point.wait(LIMIT_S)
        advance(job, gate, 2 * STEP)  # while it is held
        before = job.incarnations()
        os.kill(job.pid_of(HELD), signal.SIGKILL)
        pause_point.release()
        wait_for_successors(job, before, HELD)
        advance(job, gate, 3 * STEP)
        job.wait_for(lambda _: min(whole_states(tmp_path / "store")) > 1)  # the first one is not needed
        gate.end(3 * STEP)
        assert isinstance(job.end(), JobDone)
    assert Counter(n for n, _ in output.rows) == Counter(range(3 * STEP))
    assert dict(output.rows) == {n: n // KEYS + 1 for n in range(3 * STEP)}

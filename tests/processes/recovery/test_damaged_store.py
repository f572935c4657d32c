"""A stored object is damaged while the job runs: a task that must restore from it finds its state in a standby."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.core.coordinator.coordinator_effects import Alarm, JobDone, JobFailed
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.io.store.object_files import LocalFiles
from tests.processes.harness.drawing_job import is_quiescent, wait_for_checkpoint
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import RunningJob, running

pytestmark = pytest.mark.processes

COUNT = 100
SUMMING = TaskId(1)
"""The task after the exchange, which keeps sums."""


class DamagedJob:
    """source -> by key -> sums, collected. The sums raise at one number as long as a file is there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate, self.output = folder, Gate(folder / "gate"), collect()
        trap = folder / "trap"
        trap.touch()

        def add(_key: int, total: int | None, n: int) -> tuple[int, tuple[int, int]]:
            # clonos: ok it raises once in the life of the job
            if n == COUNT and trap.exists():
                trap.unlink()
                raise ValueError("it raises once")
            return (total or 0) + n, (n, (total or 0) + n)

        self.graph = JobGraph("damaged")
        self.graph.source(GatedNumbers(self.gate)).key_by(lambda n: n % 3).stateful_map(add).sink(self.output)

    def damage(self) -> None:
        """The oldest snapshot of the sums, on which all later ones build."""
        store = LocalFiles(self.folder / "store")
        oldest = min(
            (name for name in store.list("objects") if name.split("/")[2] == str(SUMMING)),
            key=lambda name: (self.folder / "store" / name).stat().st_mtime_ns,
        )
        store.write(oldest, store.read(oldest)[:-1])

    def run(self, standbys: int) -> tuple[RunningJob, object]:
        """Until its end: the store is damaged, then the sums raise and have to be restored."""
        options = Options(checkpoint_every_ms=100, standbys=standbys, snapshot_chain_max=10_000)
        with running(self.graph, self.folder, options, domains=2, slots_needed=4) as job:
            job.wait_for(is_quiescent)
            self.gate.open_to(COUNT)
            wait_for_checkpoint(job)
            if standbys:
                job.wait_for(lambda coordinator: coordinator.standbys_ready(SUMMING) > 0)
            self.damage()
            self.gate.end(2 * COUNT)
            return job, job.end()


def test_a_task_whose_snapshot_object_is_damaged_continues_in_its_standby(tmp_path: Path) -> None:
    damaged = DamagedJob(tmp_path)
    job, end = damaged.run(standbys=1)
    assert isinstance(end, JobDone)
    assert Counter(n for n, _ in damaged.output.rows) == Counter(range(2 * COUNT))
    assert max(total for n, total in damaged.output.rows if n % 3 == 0) == sum(range(0, 2 * COUNT, 3))
    assert any("continues on a standby" in event.text for event in job.progress if isinstance(event, Alarm))


def test_without_a_standby_the_job_ends_and_names_the_object(tmp_path: Path) -> None:
    _, end = DamagedJob(tmp_path).run(standbys=0)
    assert isinstance(end, JobFailed)
    assert re.search(rf"the object objects/\w+/{SUMMING}/\S+ of the checkpoint store is corrupt", end.reason)

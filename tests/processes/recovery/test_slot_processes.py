"""Jobs on real slot processes: killed tasks recover, nothing is lost or repeated, all outputs agree on each draw."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, files, values
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import Ending, JobDone, JobFailed
from clonos.core.coordinator.failure_detector import NANOSECONDS, Alive
from clonos.core.model.errors import Blame
from clonos.core.model.ids import TaskId
from clonos_standby.inbox import DRAIN_MAX
from tests.processes.harness.drawing_job import (
    OPTIONS,
    STEP,
    DrawingJob,
    is_quiescent,
    kill,
    wait_for_checkpoint,
    wait_for_successors,
)
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import running

pytestmark = pytest.mark.processes

PAUSE_HEARTBEATS = 20
"""A pause of a second, where 5 s are the lease, and 3 heartbeats all that a broken connection is given."""


def read(coordinator: Coordinator, tasks: int) -> int:
    """Records that living incarnations have read, as their slots told last."""
    return sum(coordinator.counters.get(TaskId(task), {}).get("records_in", 0) for task in range(tasks))


def silent_ms(coordinator: Coordinator, task: int) -> float:
    """Milliseconds since the last message of a task's slot, in the coordinator's time."""
    assert coordinator.view is not None
    state = coordinator._state
    life = state.lives[coordinator.view.placements[task].hosting_slot]
    assert isinstance(life, Alive), life
    return (state.awake_ns - life.last_message_ns) / NANOSECONDS


@pytest.mark.parametrize("tcp", [False, True], ids=["ipc", "curve"])
def test_all_outputs_agree_after_every_task_was_killed_once(tmp_path: Path, tcp: bool) -> None:
    drawing = DrawingJob(tmp_path)
    reach = 0
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2, tcp=tcp) as job:
        job.wait_for(is_quiescent)
        for task in job.incarnations():
            reach = drawing.advance(reach)
            wait_for_checkpoint(job)
            before = job.incarnations()
            reach = drawing.advance(reach)
            kill(job, task)
            wait_for_successors(job, before, task)
        drawing.gate.end(reach)
        assert isinstance(job.end(), JobDone)
        assert job.generation == 1
    drawing.check(reach)


def test_two_connected_tasks_killed_at_once_recover_without_a_rollback(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        reach = drawing.advance(0)
        wait_for_checkpoint(job)
        before = job.incarnations()
        reach = drawing.advance(reach)
        kill(job, 0, 2)
        wait_for_successors(job, before, TaskId(0), TaskId(2))
        drawing.gate.end(reach)
        assert isinstance(job.end(), JobDone)
        assert job.generation == 1
    drawing.check(reach)


def test_a_domain_that_is_killed_recovers_without_a_rollback(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2, domains=2) as job:
        job.wait_for(is_quiescent)
        reach = drawing.advance(0)
        wait_for_checkpoint(job)
        reach = drawing.advance(reach)
        before = job.incarnations()
        victims = job.driver.ask(lambda it: [slot.pid for slot in it.slots if slot.domain == it.slots[0].domain])
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        job.wait_for(lambda it: len(it.slots) >= len(before) and is_quiescent(it))
        drawing.gate.end(reach)
        assert isinstance(job.end(), JobDone)
        assert job.generation == 1
    drawing.check(reach)


def test_a_job_whose_fork_server_is_killed_restores_and_completes_its_output(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        reach = drawing.advance(0)
        wait_for_checkpoint(job)
        reach = drawing.advance(reach)
        before = job.incarnations()
        os.kill(psutil.Process(job.pid_of(0)).ppid(), signal.SIGKILL)
        wait_for_successors(job, before, *before)
        drawing.gate.end(drawing.advance(reach))
        assert isinstance(job.end(), JobDone)
    drawing.check(reach + STEP)


def test_a_pause_shorter_than_the_lease_is_no_failure(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        reach = drawing.advance(0)
        wait_for_checkpoint(job)
        before = job.incarnations()
        reach = drawing.advance(reach)
        pid = job.pid_of(2)
        os.kill(pid, signal.SIGSTOP)
        try:
            job.wait_for(lambda it: silent_ms(it, 2) > PAUSE_HEARTBEATS * OPTIONS.heartbeat_ms)
        finally:
            os.kill(pid, signal.SIGCONT)
        beaten = job.driver.ask(lambda it: it.checkpoint)
        assert not job.progress
        job.wait_for(lambda it: it.checkpoint > beaten and is_quiescent(it))
        assert job.incarnations() == before
        drawing.gate.end(reach)
        assert isinstance(job.end(), JobDone)
    drawing.check(reach)


def test_a_paused_slot_is_replaced_after_its_lease_and_finds_itself_released(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, replace(OPTIONS, lease_ms=2_000), parallelism=2) as job:
        job.wait_for(is_quiescent)
        reach = drawing.advance(0)
        wait_for_checkpoint(job)
        before = job.incarnations()
        reach = drawing.advance(reach)
        pid = job.pid_of(2)
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_for_successors(job, before, TaskId(2))
        finally:
            os.kill(pid, signal.SIGCONT)
        job.wait_for(lambda _: pid not in job.provider.pids().values())
        drawing.gate.end(reach)
        assert isinstance(job.end(), JobDone)
    drawing.check(reach)


def test_a_simple_job_ends_by_itself_with_its_output_and_leaves_no_file(tmp_path: Path) -> None:
    graph, output = JobGraph("simple"), collect()
    graph.source(values(range(1_000))).map(lambda n: n * n).sink(output)
    with running(graph, tmp_path, parallelism=2) as job:
        assert job.end() == JobDone(Ending.FINISHED, job.driver.ask(lambda coordinator: coordinator.checkpoint))
    assert sorted(output.rows) == [n * n for n in range(1_000)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_an_error_of_user_code_fails_the_job_with_step_record_and_traceback(tmp_path: Path) -> None:
    graph = JobGraph("failing")
    graph.source(values(range(100))).map(lambda n: 1 // (n - 42), name="invert").sink(collect())
    with running(graph, tmp_path, OPTIONS) as job:
        failed = job.end()
    assert isinstance(failed, JobFailed)
    assert (failed.blame, failed.step, failed.record) == (Blame.JOB, "invert", "42")
    assert "ZeroDivisionError" in failed.error
    assert "1 // (n - 42)" in failed.traceback


def test_a_drained_job_resumes_from_its_last_checkpoint(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        reach = drawing.advance(0)
        job.wait_for(lambda it: read(it, 2) > STEP)
        job.driver.stop(drain=True)
        done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.DRAINED
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2, resume=True) as job:
        job.wait_for(is_quiescent)
        drawing.gate.end(drawing.advance(reach))
        assert isinstance(job.end(), JobDone)
    drawing.check(2 * STEP)


def test_a_resume_after_all_processes_died_neither_loses_nor_repeats_transactional_output(tmp_path: Path) -> None:
    graph, gate, folder = JobGraph("resumed"), Gate(tmp_path / "gate"), tmp_path / "out"
    graph.source(GatedNumbers(gate)).key_by(lambda n: n % 3).stateful_map(
        lambda _, total, n: ((total or 0) + n, {"n": n, "total": (total or 0) + n})
    ).sink(files.jsonl(str(folder)))
    with running(graph, tmp_path, OPTIONS, parallelism=2) as job:
        gate.open_to(STEP)
        wait_for_checkpoint(job)
        gate.open_to(2 * STEP)
        for pid in job.provider.pids().values():
            os.kill(pid, signal.SIGKILL)
    with running(graph, tmp_path, OPTIONS, parallelism=2, resume=True) as job:
        gate.end(2 * STEP)
        assert isinstance(job.end(), JobDone)
    rows = [
        json.loads(line) for part in files.committed(str(folder)) for line in Path(part.path).read_text().splitlines()
    ]
    assert Counter(row["n"] for row in rows) == Counter(range(4 * STEP))
    for key in range(3):
        assert max(row["total"] for row in rows if row["n"] % 3 == key) == sum(range(key, 4 * STEP, 3))


def test_a_corrupt_snapshot_fails_the_job_with_an_error_that_names_it(tmp_path: Path) -> None:
    graph, gate = JobGraph("corrupted"), Gate(tmp_path / "gate")
    graph.source(GatedNumbers(gate)).sink(collect())
    with running(graph, tmp_path, OPTIONS) as job:
        gate.open_to(STEP)
        wait_for_checkpoint(job)
        job.driver.stop(drain=True)
        job.end()
    objects = sorted(path for path in (tmp_path / "store" / "objects").rglob("*") if path.is_file())
    for path in objects:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with running(graph, tmp_path, OPTIONS, resume=True) as job:
        failed = job.end()
    assert isinstance(failed, JobFailed)
    assert "is corrupt" in failed.reason + failed.error
    assert any(path.name in failed.reason + failed.error for path in objects)


def test_an_event_from_another_thread_arrives_while_the_driver_drains_its_queue(tmp_path: Path) -> None:
    graph = JobGraph("interrupted")
    graph.source(GatedNumbers(Gate(tmp_path / "gate"))).sink(collect())
    with running(graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)

        def stop_often() -> None:  # the last one waits in the inbox while the driver takes up the events of the others
            for _ in range(DRAIN_MAX):
                job.driver.stop(drain=True)
            job.driver.stop(drain=False)

        def interrupt(_: Coordinator) -> None:  # in the driver's own thread
            other = threading.Thread(target=stop_often)
            other.start()
            other.join()

        job.driver.ask(interrupt)
        done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.ABORTED

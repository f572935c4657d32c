"""Traces and stories of real slots: a trace that SIGKILL cuts off, and a story that a signal asks for."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.slot.event_trace import replay
from tests.processes.harness.drawing_job import (
    OPTIONS,
    DrawingJob,
    is_quiescent,
    kill,
    wait_for_checkpoint,
    wait_for_successors,
)
from tests.processes.harness.running_job import LIMIT_S, running

pytestmark = pytest.mark.processes

VICTIM = TaskId(2)
"""The first task of the step that remembers."""


def records_in(coordinator: Coordinator) -> int:
    """What the victim has taken in, as its slot reported last."""
    return coordinator.counters.get(VICTIM, {}).get("records_in", 0)


def test_the_trace_of_a_killed_slot_replays_into_the_state_in_which_it_was_killed(tmp_path: Path) -> None:
    drawing, traces = DrawingJob(tmp_path), tmp_path / "traces"
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2, slot_trace=str(traces)) as job:
        job.wait_for(is_quiescent)
        reach = drawing.advance(0)
        wait_for_checkpoint(job)
        job.wait_for(lambda coordinator: records_in(coordinator) > 0)
        killed, before, reported = job.slot_of(VICTIM), job.incarnations(), job.driver.ask(records_in)
        reach = drawing.advance(reach)
        kill(job, VICTIM)
        wait_for_successors(job, before, VICTIM)
        drawing.gate.end(reach)
        assert isinstance(job.end(), JobDone)
    drawing.check(reach)
    slots = {path.name: replay(path.read_bytes()) for path in sorted(traces.iterdir())}
    dead = slots.pop(f"slot-{killed:016x}.trace")
    hosted = dead.hosted[VICTIM]
    assert (dead.id, hosted.incarnation) == (killed, before[VICTIM])
    assert hosted.running.records_in is not None
    assert hosted.running.records_in >= reported
    assert len(dead.story.lines(VICTIM)) > 10
    assert len(slots) >= len(before)


def test_a_running_slot_writes_its_story_when_it_gets_the_signal(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        slot: SlotId = job.slot_of(VICTIM)
        os.kill(job.pid_of(VICTIM), signal.SIGUSR1)
        story = tmp_path / f"slot-{slot:016x}.story"
        waited = threading.Event()
        for _ in range(int(LIMIT_S * 100)):
            if story.exists() and story.read_text("utf-8").endswith("\n"):
                break
            waited.wait(0.01)
        lines = story.read_text("utf-8").splitlines()
        drawing.gate.end(drawing.advance(0))
        assert isinstance(job.end(), JobDone)  # the slot goes on
    assert lines[0] == "The last events of this slot, oldest first:"
    assert any("ElementsNeeded" in line or "LogEndReached" in line for line in lines)


def test_a_trace_that_cannot_be_written_is_in_the_drivers_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    drawing = DrawingJob(tmp_path)
    (tmp_path / "file").write_text("")
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2, slot_trace=str(tmp_path / "file" / "traces")) as job:
        drawing.gate.end(drawing.advance(0))
        assert isinstance(job.end(), JobDone)
    assert "the slot writes no trace" in caplog.text

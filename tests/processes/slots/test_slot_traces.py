"""What real slots write down of themselves: a trace that SIGKILL cuts off, and a story for whoever asks by signal."""

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
from tests.processes.harness.running_job import LIMIT_S, running
from tests.processes.recovery.test_slot_processes import (
    OPTIONS,
    DrawingJob,
    is_calm,
    kill,
    renewed,
    wait_for_checkpoint,
)

pytestmark = pytest.mark.processes

VICTIM = TaskId(2)
"""The first task of the step that remembers."""


def records_in(coordinator: Coordinator) -> int:
    """What the victim has taken in, as its slot reported last."""
    return coordinator.counters.get(VICTIM, {}).get("records_in", 0)


def test_the_trace_of_a_killed_slot_replays_into_the_state_in_which_it_was_killed(tmp_path: Path) -> None:
    drawing, traces = DrawingJob(tmp_path), tmp_path / "traces"
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2, slot_trace=str(traces)) as job:
        job.wait_for(is_calm)
        reach = drawing.advance(0)
        wait_for_checkpoint(job)
        job.wait_for(lambda coordinator: records_in(coordinator) > 0)
        killed, before, reported = job.slot_of(VICTIM), job.incarnations(), job.driver.ask(records_in)
        reach = drawing.advance(reach)
        kill(job, VICTIM)
        renewed(job, before, VICTIM)
        drawing.gate.end(reach)
        assert isinstance(job.end(), JobDone)
    drawing.check(reach)
    slots = {path.name: replay(path.read_bytes()) for path in sorted(traces.iterdir())}
    dead = slots.pop(f"slot-{killed:016x}.trace")
    hosted = dead.hosted[VICTIM]
    assert (dead.id, hosted.incarnation) == (killed, before[VICTIM])
    assert hosted.records_in is not None
    assert hosted.records_in >= reported
    assert len(dead.story.lines(VICTIM)) > 10
    assert len(slots) >= len(before)


def test_a_running_slot_writes_its_story_when_it_gets_the_signal(tmp_path: Path) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_calm)
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

"""An epoch that was captured from a running task repeats what the task did, whatever happens meanwhile."""

from __future__ import annotations

import pytest

from clonos.core.recovery.capture import TaskCapture
from clonos_chaos.swarm.capturing_world import CapturingWorld, complaints_of

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

TOPOLOGIES = ("fuzz", "api", "pushed", "timed", "transformed", "joined", "windows", "columns")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_captured_epoch_repeats_the_output_of_the_task(topology: str) -> None:
    world = CapturingWorld(75_000_100 + len(topology), "" if topology == "fuzz" else topology)
    world.run()
    assert world.captured, "no capture came to its end"
    assert [complaint for epoch in world.captured for complaint in complaints_of(world, epoch)] == []
    assert any(epoch.capture.log.data for epoch in world.captured)


@pytest.mark.parametrize("seed", [91_000_041, 91_000_045])
def test_an_epoch_with_joined_logs_is_captured_before_and_after_a_rollback(seed: int) -> None:
    world = CapturingWorld(seed)
    world.run()
    assert world.plan.replicas, "the logs were not limited to some holders"
    assert world.outcome.rollbacks
    assert len({epoch.generation for epoch in world.captured}) > 1
    assert world.begun > len(world.captured), "no capture began again"
    assert [complaint for epoch in world.captured for complaint in complaints_of(world, epoch)] == []


def test_captures_do_not_change_what_comes_out() -> None:
    world = CapturingWorld(75_000_002)
    world.run()  # the oracle of the world raises if output is wrong, and the world if a process does not end
    assert world.captured


def test_a_capture_without_the_last_input_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that the comparison of the tests above can fail."""
    world = CapturingWorld(75_000_002)
    world.run()
    epoch = next(each for each in world.captured if any(pages.chunks for pages in each.capture.inputs))
    assert complaints_of(world, epoch) == []
    capture: TaskCapture = epoch.capture
    for pages in capture.inputs:
        monkeypatch.setattr(pages, "chunks", pages.chunks[:-1])
    (complaint,) = complaints_of(world, epoch)
    assert "NeedsMore: the task waits for input" in complaint

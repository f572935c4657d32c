"""Whole epochs that are recorded repeat what the tasks did, whatever happens meanwhile."""

from __future__ import annotations

import pytest

from clonos_chaos.swarm.capturing_world import complaints_of
from clonos_chaos.swarm.recording_world import RecordingWorld

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

TOPOLOGIES = ("fuzz", "api", "pushed", "timed", "transformed", "joined")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_recorded_epoch_reaches_the_next_barrier_and_repeats_the_output(topology: str) -> None:
    world = RecordingWorld(75_000_202, "" if topology == "fuzz" else topology)
    world.run()
    assert world.captured, "no epoch was recorded"
    assert world.held, "no news of a checkpoint was held back"
    assert [complaint for epoch in world.captured for complaint in complaints_of(world, epoch)] == []
    for epoch in world.captured:
        assert epoch.capture.log.next_bytes == epoch.capture.log.end_bytes
        assert all(pages.next_seq == pages.end_seq for pages in epoch.capture.inputs)

"""A stop with a final checkpoint that comes before the tasks run waits until they do."""

from __future__ import annotations

import pytest

from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.coordinator.coordinator_events import StopRequested
from clonos.core.coordinator.coordinator_state import JobPhase
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World

pytestmark = pytest.mark.worlds


class StoppedWorld(World):
    """World whose user stops the job after some time, often before its slots have registered."""

    phase: JobPhase | None = None  # when the stop came
    expects_failure = True  # not all records are written

    def stop_after(self, milliseconds: int) -> None:
        """Stops the job at this instant of virtual time."""
        self.clock.at(milliseconds * MILLISECOND_NS, self._stop)

    def _stop(self) -> None:
        self.phase = self.coordinator.machine.phase
        self.handle(StopRequested(drain=True))


def test_a_stop_at_any_time_of_a_start_ends_with_a_checkpoint_that_can_be_copied() -> None:
    phases = set()
    for seed in range(6):
        world = StoppedWorld(seed)
        world.stop_after(seed % 3)
        world.run()
        phases.add(world.phase)
        assert isinstance(world.ending, JobDone), (seed, world.ending)
        assert world.ending.ending in (Ending.DRAINED, Ending.FINISHED), (seed, world.phase)
        assert world.ending.checkpoint in world.chain, seed
    assert JobPhase.STARTING in phases

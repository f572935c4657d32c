"""Stops with a final checkpoint: before the tasks run, and what a resume after one knows."""

from __future__ import annotations

import pytest

from clonos.core.coordinator.coordinator_effects import Ending, JobDone, JobFailed
from clonos.core.coordinator.coordinator_events import Begin, StopRequested
from clonos.core.coordinator.coordinator_state import JobPhase
from clonos.core.model.options import Options
from clonos_chaos.jobs.async_jobs import AsideJob
from clonos_chaos.sim.sim_coordinator import SimCoordinator
from clonos_chaos.sim.sim_tables import ExternalKind
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


@pytest.mark.slow
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


class ForgetfulJob(AsideJob):
    """Job whose calls have outcomes after a barrier, with an external system that does not say which rows it has."""

    external_kind = ExternalKind.FORGETTING


class ResumedWorld(StoppedWorld):
    """World that is stopped, resumed, killed as a whole before another checkpoint, and resumed again.

    ``warned``: warnings of output that may leave again, per life of the job.
    """

    expects_failure = False

    def __init__(self, seed: int) -> None:
        options = Options(checkpoint_every_ms=100_000)
        super().__init__(seed, options=options, job=lambda rng: ForgetfulJob("job", rng, 60, None), targeted_faults=())
        self.warned: list[int] = []
        self.stop_after(30)

    def end(self, ending: JobDone | JobFailed) -> None:
        """Resumes the job after its stop."""
        if self.warned:
            super().end(ending)
            return
        assert isinstance(ending, JobDone)
        assert ending.ending is Ending.DRAINED
        self._begin_again()
        self.clock.after(200 * MILLISECOND_NS, self._begin_again)

    def _begin_again(self) -> None:
        if self.ending is not None:
            return
        self.warned.append(sum("may leave again" in text for text, _ in self.warnings) - sum(self.warned))
        self.coordinator.is_dead = True
        for slot in self.living():
            self.end_slot(slot.id)
        self.oracle.is_lost, self.oracle.is_over = True, False
        self.store_term += 1
        self.coordinator = SimCoordinator(self, self.store_term)
        for _ in range(self.slots_needed):
            self.add_slot()
        self.coordinator.handle(Begin(self.store_term, "fuzz", self.slots_needed, self.chain[max(self.chain)]))
        self.coordinator.tick()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20, 42, 53])
def test_the_first_resume_after_a_stop_warns_of_no_repeated_output_and_the_second_does(seed: int) -> None:
    world = ResumedWorld(seed)
    world.run()
    assert world.warned == [0, 0]
    assert any("may leave again" in text for text, _ in world.warnings)

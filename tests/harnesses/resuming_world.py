"""A world whose user resumes a job that failed at a hard limit, from its last checkpoint and with higher limits."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.core.coordinator.coordinator_effects import JobDone, JobFailed
from clonos.core.coordinator.coordinator_events import Begin
from clonos.core.model.options import Options
from clonos_chaos.jobs.fuzz_jobs import FUZZ_TOPOLOGIES
from clonos_chaos.sim.sim_coordinator import SimCoordinator
from clonos_chaos.swarm.random_options import draw_options
from clonos_chaos.swarm.world import World


class ResumingWorld(World):
    """``failure``: why the job had to be resumed; empty if it was not."""

    def __init__(self, seed: int, **limits: object) -> None:
        self.roomy = replace(draw_options(Random(seed)), checkpoint_every_ms=30)
        self.failure = ""
        topology = FUZZ_TOPOLOGIES[seed % len(FUZZ_TOPOLOGIES)]
        super().__init__(seed, topology, options=replace(self.roomy, **limits))  # type: ignore[arg-type]

    @property
    def was_above_soft_limit(self) -> bool:
        """Whether a slot has warned that it is above its soft limit."""
        return any("above a soft limit: " in text for text, _ in self.warnings)

    def end(self, ending: JobDone | JobFailed) -> None:
        """Resumes the job instead of ending the world, if a limit was reached and a checkpoint exists."""
        if isinstance(ending, JobFailed) and "LimitExceeded" in ending.reason and not self.failure:
            self.failure = ending.reason
            self.clock.at(
                self.clock.now_ns, self._resume if self.chain else super().end, *(() if self.chain else [ending])
            )
            return
        super().end(ending)

    def _resume(self) -> None:
        self.coordinator.is_dead = True
        for slot in self.living():
            self.end_slot(slot.id)
        self.options: Options = self.roomy
        self.oracle.is_lost = True  # a new generation is what a resume begins
        self.store_term += 1
        self.coordinator = SimCoordinator(self, self.store_term)
        for _ in range(self.slots_needed):
            self.add_slot()
        resume = self.chain[max(self.chain)]
        self.note(f"the user resumes from checkpoint {resume.checkpoint}")
        self.coordinator.handle(Begin(self.store_term, "fuzz", self.slots_needed, resume))
        self.coordinator.tick()

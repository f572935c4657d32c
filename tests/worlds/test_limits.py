"""Whole jobs with far too small budgets drain, or fail and are resumed; none is stuck, no record is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from clonos.core.model.options import SpillPolicy
from clonos_chaos.sim.environment import WorldFailed
from tests.harnesses.resuming_world import ResumingWorld

pytestmark = pytest.mark.worlds
SEEDS = range(1, 37)


def _run(seed: int, **limits: object) -> str:
    """Runs the world to its end; its oracle has checked the output."""
    world = ResumingWorld(seed, **limits)
    try:
        world.run()
    except WorldFailed:
        if not world.failure or world.chain:
            raise
        return "failed aloud before anything could be resumed"
    if world.failure:
        return "resumed"
    return "drained" if world.was_above_soft_limit else "had enough"


@pytest.mark.slow
def test_b43_a_job_with_too_small_a_disk_drains_or_is_resumed() -> None:
    ends = Counter(_run(seed, inflight_disk_bytes=3_000, spill_policy=SpillPolicy.EAGER) for seed in SEEDS)
    assert ends["drained"] > 0
    assert ends["resumed"] > 0


@pytest.mark.slow
def test_a5_a_job_with_too_little_log_memory_drains_or_is_resumed() -> None:
    ends = Counter(_run(seed, log_memory_bytes=3_000) for seed in SEEDS)
    assert ends["drained"] > 0
    assert ends["resumed"] > 0

"""Jobs of transformations in simulated worlds: every row comes out once, whatever dies."""

from __future__ import annotations

import pytest

from clonos_chaos.jobs.transformed_jobs import UNREAD, EndedJob
from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.world import World
from tests.worlds.playing import is_done, swarmed
from tests.worlds.search import Search

pytestmark = [pytest.mark.worlds, pytest.mark.slow]


@pytest.mark.exhaustive
def test_random_worlds_of_transformations_are_correct(search: Search) -> None:
    assert swarmed(search, Swarm("transformed"), part=4).checkpoints > 0


def test_a_limit_ends_the_sources_in_front_of_it() -> None:
    ended_early = 0
    for seed in range(6):
        world = World(seed, job=lambda rng: EndedJob("ended", rng, rng.randint(20, 60), rng.choice((None, None, 1, 2))))
        world.run()
        assert is_done(world)
        assert isinstance(world.job, EndedJob)
        ended_early += 0 < world.job.highest < world.job.records * UNREAD - 1
    assert ended_early >= 4  # in the others the source had read everything before its limit was reported

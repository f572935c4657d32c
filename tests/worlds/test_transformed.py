"""Jobs of transformations in simulated worlds: every row comes out once, whatever dies."""

from __future__ import annotations

import pytest

from clonos_chaos.swarm.environments import Swarm
from tests.worlds.playing import swarmed

pytestmark = pytest.mark.worlds


def test_random_worlds_of_transformations_are_correct(seeds: range) -> None:
    assert swarmed(seeds[: len(seeds) // 4], Swarm("transformed")).checkpoints > 0

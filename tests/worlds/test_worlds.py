"""Random worlds: real slots, tasks and coordinator in virtual time, everything going wrong that can, from one seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clonos_chaos.world import TOPOLOGIES, World
from tests.worlds.playing import swarmed

pytestmark = pytest.mark.worlds

ROOT = Path(__file__).parents[2]
REPLAYED = [
    line.split(maxsplit=2)
    for line in Path(__file__).with_name("seeds.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
DIGESTS = """
import sys
sys.path[:0] = sys.argv[1:]
from clonos_chaos.world import World
print([World(seed).run().digest for seed in range(3, 11)])
"""


def test_no_world_shows_a_fault(seeds: range) -> None:
    assert swarmed(seeds).checkpoints > 0


@pytest.mark.parametrize(("seed", "topology", "reason"), REPLAYED, ids=[f"{seed}-{name}" for seed, name, _ in REPLAYED])
def test_a_world_that_has_shown_a_fault_once_is_well(seed: str, topology: str, reason: str) -> None:
    assert topology in TOPOLOGIES
    World(int(seed), topology).run()


def test_a_seed_is_one_world_whatever_the_hash_seed() -> None:
    """Also in another process: nothing depends on the order of a set, on an address or on the clock."""
    digests = {_digests(hash_seed) for hash_seed in ("0", "1")}
    assert len(digests) == 1, digests


def _digests(hash_seed: str) -> str:
    paths = [str(ROOT / folder) for folder in (".", "services", "standby", "chaos")]
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(
        [sys.executable, "-c", DIGESTS, *paths], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout

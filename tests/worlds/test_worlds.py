"""Random worlds: real slots, tasks and coordinator in virtual time, with every kind of fault, from one seed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from clonos.core.model.ids import SlotId
from clonos_chaos.sim.rare_situations import LATE_DELTA, ROLLBACK, SITUATIONS
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.seeds import SwarmResult
from clonos_chaos.swarm.world import KEYED, TOPOLOGIES, World
from tests.worlds.playing import swarmed
from tests.worlds.search import Search

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
from clonos_chaos.swarm.world import World
print([World(seed).run().digest for seed in range(3, 11)])
"""


COVERING_WORLDS_MIN = 1_000
"""So many worlds reach every rare situation. The rarest, a zombie that is fenced at a sink, is in one of sixty."""


@pytest.mark.exhaustive
def test_no_world_shows_a_fault_and_every_rare_situation_is_reached(search: Search) -> None:
    total = swarmed(search)
    assert total.checkpoints > 0
    if total.worlds >= COVERING_WORLDS_MIN:
        never = total.never_reached()
        assert not never, f"{total.worlds} worlds from seed {search.seeds[0]} on have never reached: {', '.join(never)}"


def test_a_swarm_names_the_situations_that_it_never_reached() -> None:
    total = SwarmResult(reached=Counter({ROLLBACK: 3, LATE_DELTA: 1}))
    assert set(total.never_reached()) == set(SITUATIONS) - {ROLLBACK, LATE_DELTA}
    assert "rollback 3" in total.situations()
    assert "spill during a replay never" in total.situations()


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "topology", "reason"), REPLAYED, ids=[f"{seed}-{name}" for seed, name, _ in REPLAYED])
def test_a_world_that_once_showed_a_fault_shows_none_now(seed: str, topology: str, reason: str) -> None:
    kind, _, name = topology.rpartition("-")
    assert name in (*TOPOLOGIES, KEYED)
    Swarm(name, kind == "mix", kind == "rescale").world(int(seed)).run()


@pytest.mark.parametrize("second_ms", [7, 30], ids=["a short one within it", "a longer one"])
@pytest.mark.parametrize("is_resumed", [False, True], ids=["it wakes", "it is woken"])
def test_the_queued_work_of_a_paused_process_runs_in_order_after_every_pause(second_ms: int, is_resumed: bool) -> None:
    world = World(3)
    slot, happened = SimSlot(world, SlotId(1), "domain"), list[int]()
    slot.pause(10 * MILLISECOND_NS)
    slot.run(happened.append, 0)
    slot.run(happened.append, 1)
    world.clock.at(5 * MILLISECOND_NS, slot.pause, second_ms * MILLISECOND_NS)
    for number, instant_ms in enumerate((6, 8, 10, 20, 40), start=2):
        world.clock.at(instant_ms * MILLISECOND_NS, slot.run, happened.append, number)
    if is_resumed:
        world.clock.at(9 * MILLISECOND_NS, slot.resume)
    while len(happened) < 7:
        world.clock.step()
    assert happened == sorted(happened)


@pytest.mark.slow
def test_a_seed_gives_one_world_under_every_hash_seed() -> None:
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

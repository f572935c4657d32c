"""Aimed cases 22, 28 to 30 and 37 of the conformance list: deaths within the sharing depth, and what befalls sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clonos_chaos.directed.building_blocks import (
    IMMEDIATE,
    RICH,
    SCENES,
    TRANSACTIONAL,
    Scene,
    along,
    kills,
    kills_all_but,
    kills_with_keepers,
    line,
    scene,
    stage,
)
from clonos_chaos.jobs.fuzz_chain import Work
from clonos_chaos.sim.sim_tables import OutsideKind
from clonos_chaos.sim.targeted_faults import Aim
from clonos_chaos.swarm.world import World


@scene("22 linked tasks die within the sharing depth")
def _within_the_depth(seed: int) -> World:
    return stage(
        seed,
        line(RICH, RICH, RICH, RICH, sink=TRANSACTIONAL),
        [Aim("batch delivered", kills("a/0", "b/0"), along("b/0", "c/0"), nth=8)],
        options={"sharing_depth": 2},
    )


@scene("37 all processes but one die, and others come")
def _all_but_one(seed: int) -> World:
    """The sink lives on and has the logs of all. Tasks crowd in what is left, until there are other processes."""
    aim = Aim("outside written", kills_all_but("sink/0"), nth=20)
    return stage(seed, line(RICH, RICH, RICH, sink=IMMEDIATE), [aim], records=150)


@scene("29 writer of a table dies")
def _writer_dies(seed: int) -> World:
    aims = [Aim("outside written", kills("sink/0"), nth=nth) for nth in (4, 12)]
    return stage(seed, line(RICH, RICH, sink=IMMEDIATE), aims, outside=OutsideKind.SQLITE)


def _writer_dies_with_keepers(kind: OutsideKind) -> Scene:
    """Twice: the second time in the generation that the first has begun."""
    aims = [Aim("outside written", kills_with_keepers("sink/0"), nth=nth) for nth in (6, 14)]
    return lambda seed: stage(
        seed, line(RICH, RICH, sink=IMMEDIATE, widths=(1, 2, 2)), [replace(aim) for aim in aims], outside=kind
    )


_SNAPSHOT = ("aligned", "snapshot written", "metadata begun", "metadata written", "complete")


def _sink_dies(point: str, sink: Work, **options: Any) -> Scene:
    aim = Aim(point, kills("sink/0"), nth=4)
    return lambda seed: stage(seed, line(RICH, RICH, sink=sink), [replace(aim)], options=options)


for _point in (*_SNAPSHOT, "committed"):
    SCENES[f"28 transactional sink dies at {_point}"] = _sink_dies(_point, TRANSACTIONAL)
for _point in (*_SNAPSHOT, "outside written"):
    SCENES[f"29 immediate sink dies at {_point}"] = _sink_dies(_point, IMMEDIATE)
SCENES["30 immediate sink without keepers dies"] = _sink_dies("outside written", IMMEDIATE, keepers=0)
for _kind in OutsideKind:
    if _kind is not OutsideKind.ALARMING:
        SCENES[f"30 writer of a table dies with its keepers: {_kind}"] = _writer_dies_with_keepers(_kind)
SCENES["30 transactional sink without keepers dies"] = _sink_dies("snapshot written", TRANSACTIONAL, keepers=0)

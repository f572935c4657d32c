"""Directed tests of sources that cannot be re-read: source, keeper or both die at each step of a record's way.

They are separate from ``DIRECTED_TESTS``, because here the oracle compares with what the producer has sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from clonos.core.wire.control_messages import Snapshotted
from clonos.core.wire.replication_messages import AppendLog
from clonos_chaos.jobs.pushed_jobs import PushedJob
from clonos_chaos.project.directed.building_blocks import (
    EXTERNAL_WRITTEN,
    IMMEDIATE,
    PLAIN,
    RICH,
    TRANSACTIONAL,
    about,
    at,
    both,
    by_successor,
    in_turn,
    kills,
    kills_it,
    kills_with_keepers,
    line,
    lost,
)
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.targeted_faults import FaultAction, PointReached, TargetedFault, delivered, sent
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS
from clonos_chaos.swarm.world import World

SOURCE = "source/0"
PUSHED = replace(RICH, is_pushed=True)
SLOW_CHECKPOINTS = {"checkpoint_every_ms": 5_000}

JournalTest = Callable[[int, bool], World]
"""(seed, whether the producer goes back to where the job asks) -> a world that has not run."""


def kills_keepers(world: SimCluster, reached: PointReached) -> None:
    """Kills the slots of the source's keepers at one instant."""
    keepers = world.view.placements[reached.known_task].keepers
    world.kill_together([world.slots[slot] for slot in keepers if slot in world.slots])


def journal_world(
    seed: int,
    goes_back: bool,
    targeted_faults: list[TargetedFault],
    sink: Any = TRANSACTIONAL,
    options: dict[str, Any] | None = None,
    spare_slots: int = SETTINGS.spare_slots,
) -> World:
    """Makes a world with ``source``, ``a`` and ``sink`` and these faults only."""
    chosen = replace(OPTIONS, **(options or {}))
    build = line(PUSHED, PLAIN, sink=sink)
    return World(
        seed,
        options=chosen,
        settings=replace(SETTINGS, spare_slots=spare_slots),
        job=lambda rng: PushedJob(
            "pushed", Random(rng.getrandbits(64)), 90, chosen.sharing_depth, build, goes_back=goes_back
        ),
        targeted_faults=targeted_faults,
    )


def _at(point: str, action: FaultAction, nth: int) -> JournalTest:
    return lambda seed, goes_back: journal_world(seed, goes_back, [at(point, action, about(SOURCE), nth)])


SURVIVED: dict[str, JournalTest] = {
    f"{whom} dies when {what}": _at(point, action, nth)
    for what, point, nth in (
        ("bytes have come in", "taken in", 9),
        ("they are on their way to the keeper", sent(AppendLog), 9),
        ("the keeper has them", delivered(AppendLog), 9),
        ("the producer gets an acknowledgement", "acknowledged", 9),
        ("records are read", "emission", 9),
        ("a barrier leaves", "aligned", 1),
        ("its snapshot is written", "snapshot written", 1),
        ("the stream ends", "end of stream", 1),
    )
    for whom, action in (
        ("the source", kills_it),
        ("the keeper", kills_keepers),
        ("the source, then the keeper,", in_turn((0, kills_it), (150, kills_keepers))),
        ("the keeper, then the source,", in_turn((0, kills_keepers), (150, kills_it))),
        ("the source and the task after it", kills(SOURCE, "a/0")),
    )
}
"""Failures that are survived without a rollback."""

SURVIVED["the source dies, and its snapshot is never acknowledged"] = lambda seed, goes_back: journal_world(
    seed, goes_back, [TargetedFault(sent(Snapshotted), kills_it, about(SOURCE), is_loss=True)]
)
SURVIVED["the successor dies when the producer gets an acknowledgement"] = lambda seed, goes_back: journal_world(
    seed,
    goes_back,
    [
        at("acknowledged", kills_it, about(SOURCE), 5),
        at("acknowledged", kills_it, both(about(SOURCE), by_successor), 5),
    ],
)


def _to_one_that_lags(world: SimCluster, reached: PointReached) -> bool:
    """Holds, until the second death of the source, for its messages to keepers other than the first."""
    keepers = world.view.placements[reached.known_task].keepers
    return reached.receiver not in keepers[:1] and world.killed < 2


SURVIVED["the source dies, then its successor with the keeper that had more than the other"] = lambda seed, goes_back: (
    journal_world(
        seed,
        goes_back,
        [
            lost(AppendLog, both(about(SOURCE), _to_one_that_lags), nth=8, times=1_000_000),
            at("taken in", in_turn((0, kills_it), (150, kills_it)), about(SOURCE), 9),
        ],
        options={**SLOW_CHECKPOINTS, "keepers": 2},
        spare_slots=2,
    )
)

LOST: dict[str, JournalTest] = {
    "source and keeper die together": lambda seed, goes_back: journal_world(
        seed,
        goes_back,
        [at("acknowledged", kills_with_keepers(SOURCE), about(SOURCE), 9)],
        options=SLOW_CHECKPOINTS,
    ),
}
"""Failures that lose the journal."""


def kills_all_but_the_sources_keepers(world: SimCluster, reached: PointReached) -> None:
    """Kills the slots of an immediate sink, of its keepers and of the source at one instant."""
    source, sink = (world.view.placements[world.task(name)] for name in (SOURCE, "sink/0"))
    slots = dict.fromkeys((source.hosting_slot, sink.hosting_slot, *sink.keepers))
    world.kill_together([world.slots[slot] for slot in slots if slot not in source.keepers])


def kills_all_but_the_source(world: SimCluster, reached: PointReached) -> None:
    """Kills the slots of an immediate sink, of its keepers and of the source's keepers at one instant."""
    source, sink = (world.view.placements[world.task(name)] for name in (SOURCE, "sink/0"))
    slots = dict.fromkeys((sink.slot, *sink.keepers, *source.keepers))
    world.kill_together([world.slots[slot] for slot in slots if slot != source.slot and slot in world.slots])


def _injected_at_the_sink(action: FaultAction) -> JournalTest:
    """Injects a fault at the sink. Two spare slots keep the keepers of source and sink apart."""
    targeted = at(EXTERNAL_WRITTEN, action, about("sink/0"), 9)
    return lambda seed, goes_back: journal_world(
        seed, goes_back, [replace(targeted)], sink=IMMEDIATE, options=SLOW_CHECKPOINTS, spare_slots=2
    )


ROLLED_BACK: dict[str, JournalTest] = {
    "an immediate sink and its keeper die together": _injected_at_the_sink(kills_with_keepers("sink/0")),
    "an immediate sink, its keeper and that of the source die together": _injected_at_the_sink(
        kills_all_but_the_source
    ),
    "an immediate sink, its keeper and the source die together": _injected_at_the_sink(
        kills_all_but_the_sources_keepers
    ),
}
"""Failures that lose another log, but no journal."""

"""Directed tests 50: tasks with hot standbys, whose shadows take over or do not."""

from __future__ import annotations

from dataclasses import replace

from clonos.core.wire.control_messages import Placement
from clonos.core.wire.shadow_messages import FeedShadow
from clonos_chaos.project.directed.building_blocks import (
    RICH,
    TIMED,
    TRANSACTIONAL,
    about,
    after,
    along,
    at,
    both,
    by_successor,
    directed,
    directed_test,
    kills,
    kills_it,
    kills_standbys,
    line,
    lost,
)
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.targeted_faults import PointReached, TargetedFault, Where
from clonos_chaos.swarm.world import World

HOT = replace(RICH, is_hot=True)
HOT_TIMED = replace(TIMED, is_hot=True)
RECORDS = 300


def followed(*names: str) -> Where:
    """Holds while each of these tasks has a shadow that could take over."""

    def where(world: SimCluster, reached: PointReached) -> bool:
        placements = world.view.placements
        return all(_is_followed(world, placements[world.task(name)]) for name in names)

    return where


def _is_followed(world: SimCluster, placement: Placement) -> bool:
    return any(
        shadow.task == placement.task
        and shadow.incarnation == placement.incarnation
        and shadow.stands_at(slot.slot.completed)
        for slot in world.living()
        for shadow in slot.slot.backups.shadows.values()
    )


def _hit(*names: str, nth: int = 3) -> TargetedFault:
    """Kills these tasks together while each has a shadow that could take over."""
    return at("batch delivered", kills(*names), followed(*names), nth=nth)


@directed_test("50 hot standby takes over")
def _takes_over(seed: int) -> World:
    return directed(seed, line(RICH, HOT_TIMED, RICH), [_hit("a/0")], records=RECORDS)


@directed_test("50 hot standbys take over again and again")
def _again_and_again(seed: int) -> World:
    """Kills the task so often that the last incarnations replay in single-step mode."""
    kills_all = at("batch delivered", kills("a/0"), followed("a/0"), nth=3, times=4)
    return directed(
        seed, line(RICH, HOT_TIMED, RICH), [kills_all], options={"checkpoint_every_ms": 60}, records=2 * RECORDS
    )


@directed_test("50 hot standby of a source takes over")
def _source(seed: int) -> World:
    return directed(seed, line(HOT, RICH), [_hit("source/0")], records=RECORDS)


@directed_test("50 hot standby takes over from a task that has ended its stream")
def _ended(seed: int) -> World:
    kill = at("end of stream", kills_it, both(about("a/0"), followed("a/0")))
    return directed(seed, line(RICH, HOT, HOT), [kill], records=RECORDS)


@directed_test("50 task dies with all holders of its log and of its input's log")
def _with_holders(seed: int) -> World:
    kill = at("emission", kills("source/0", "a/0", "b/0", "sink/0"), both(about("a/0"), followed("a/0")), nth=4)
    return directed(
        seed, line(RICH, HOT, RICH, sink=TRANSACTIONAL), [kill], settings={"spare_slots": 5}, records=RECORDS
    )


@directed_test("50 all are followed, and all but the sink die")
def _all_hot(seed: int) -> World:
    return directed(
        seed, line(HOT, HOT, HOT, sink=TRANSACTIONAL), [_hit("source/0", "a/0", "b/0", nth=9)], records=RECORDS
    )


@directed_test("50 neighbours that are followed die one after the other")
def _neighbours(seed: int) -> World:
    first = at("batch delivered", kills("a/0"), both(along("source/0", "a/0"), followed("a/0", "b/0")), nth=2)
    again = at("live", kills("b/0"), both(about("a/0"), by_successor))
    return directed(seed, line(RICH, HOT, HOT_TIMED), [first, again], records=RECORDS)


@directed_test("50 successor dies that was a shadow")
def _successor_dies(seed: int) -> World:
    first = at("aligned", kills_it, both(about("a/0"), followed("a/0")), nth=2)
    again = at("complete", kills("a/0"), after(first), nth=3)
    return directed(seed, line(RICH, HOT, RICH), [first, again], records=RECORDS)


@directed_test("50 task dies after a barrier that its shadow has passed")
def _pending(seed: int) -> World:
    """The snapshot of the shadow replaces that of the dead incarnation, and the next one builds on it."""
    first = at("aligned of a shadow", kills("a/0"), both(about("a/0"), followed("a/0")), nth=2)
    again = at("complete", kills("a/0"), after(first), nth=3)
    return directed(
        seed,
        line(RICH, HOT, RICH),
        [first, again],
        settings={"store_ns_max": 60_000_000},
        records=RECORDS,
    )


@directed_test("50 task dies with its shadow")
def _with_shadow(seed: int) -> World:
    kill = at("batch delivered", kills_standbys("a/0", with_task=True), followed("a/0"), nth=3)
    return directed(seed, line(RICH, HOT, RICH), [kill], records=RECORDS)


@directed_test("50 task dies when its shadow begins")
def _begins(seed: int) -> World:
    kill = at("start of a shadow", kills("a/0"), about("a/0"))
    return directed(seed, line(RICH, HOT, RICH), [kill], records=RECORDS)


@directed_test("50 shadow dies, and another begins")
def _another(seed: int) -> World:
    first = at("batch delivered", kills_standbys("a/0"), followed("a/0"), nth=3)
    again = at("batch delivered", kills("a/0"), both(after(first), followed("a/0")), nth=20)
    return directed(seed, line(RICH, HOT, RICH), [first, again], records=RECORDS)


@directed_test("50 what goes to the shadow is lost now and then")
def _lossy(seed: int) -> World:
    return directed(
        seed,
        line(RICH, HOT, RICH),
        [lost(FeedShadow, about("a/0"), nth=20), lost(FeedShadow, about("a/0"), nth=60, times=3), _hit("a/0", nth=40)],
        records=RECORDS,
    )


@directed_test("50 code raises in the shadow only")
def _raises(seed: int) -> World:
    work = replace(HOT, fails_in_shadow=150)
    raised = at("emission", kills_it, both(about("a/0"), _is_refused), nth=2)
    return directed(seed, line(RICH, work, RICH), [raised], records=RECORDS)


def _is_refused(world: SimCluster, reached: PointReached) -> bool:
    return any(shadow.is_refused for slot in world.living() for shadow in slot.slot.backups.shadows.values())


@directed_test("50 two standbys follow")
def _two(seed: int) -> World:
    first = _hit("a/0")
    again = at("batch delivered", kills("a/0"), both(after(first), followed("a/0")), nth=20)
    return directed(seed, line(RICH, HOT, RICH), [first, again], options={"standbys": 2}, records=RECORDS)

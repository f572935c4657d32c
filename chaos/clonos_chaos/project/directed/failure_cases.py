"""Directed tests 20 to 26 of the conformance list: several failures, simultaneous and in sequence."""

from __future__ import annotations

from typing import Any

from clonos.core.model.ids import SlotId, owner_of
from clonos.core.model.plan import Partitioning
from clonos.core.wire.control_messages import TriggerCheckpoint, View
from clonos.core.wire.recovery_messages import LogRequest
from clonos.core.wire.replication_messages import AppendAck, AppendLog
from clonos_chaos.jobs.fuzz_jobs import FuzzJob
from clonos_chaos.project.directed.building_blocks import (
    DIRECTED_TESTS,
    EFFECTS,
    EXTERNAL_WRITTEN,
    IMMEDIATE,
    RICH,
    TIMED,
    TRANSACTIONAL,
    Build,
    DirectedTest,
    about,
    after,
    along,
    at,
    before,
    both,
    by_successor,
    cuts,
    diamond,
    directed,
    directed_test,
    in_turn,
    is_recovering,
    kills,
    kills_domain_of,
    kills_it,
    kills_standbys,
    kills_with_keepers,
    line,
    lost,
    message_has,
    nothing,
    pauses,
    received_by,
    restarts_coordinator,
    suspects,
)
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.targeted_faults import PointReached, delivered, sent
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World

_TOGETHER: dict[str, tuple[Build, tuple[str, ...]]] = {
    "two siblings": (line(RICH, RICH, RICH, widths=(1, 2)), ("a/0", "a/1")),
    "two unrelated": (diamond(), ("left/0", "sink/0")),
    "parent and child": (line(RICH, RICH, RICH), ("a/0", "b/0")),
    "a whole layer": (line(RICH, RICH, RICH, widths=(2, 2, 2)), ("b/0", "b/1")),
    "all tasks": (line(RICH, TIMED, RICH, sink=TRANSACTIONAL), ("source/0", "a/0", "b/0", "sink/0")),
}


def _together(name: str) -> DirectedTest:
    build, tasks = _TOGETHER[name]
    return lambda seed: directed(seed, build, [at("batch delivered", kills(*tasks), nth=25)])


for _name in _TOGETHER:
    DIRECTED_TESTS[f"20 {_name} die together"] = _together(_name)


@directed_test("20 child dies, then its parent while the child catches up")
def _child_then_parent(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [
            at("batch delivered", kills("b/0"), along("a/0", "b/0"), nth=8),
            at("start", kills("a/0"), both(about("b/0"), by_successor)),
        ],
    )


@directed_test("20 parent dies, then its child")
def _parent_then_child(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [
            at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=8),
            at("start", kills("b/0"), both(about("a/0"), by_successor)),
        ],
    )


@directed_test("21 task dies again during replay")
def _again_during_replay(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [
            at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=10),
            at("emission", kills_it, both(about("a/0"), by_successor), nth=2),
        ],
    )


@directed_test("21 downstream dies while its upstream waits for determinants")
def _downstream_of_gathering(seed: int) -> World:
    def upstream_gathers(world: SimCluster, reached: PointReached) -> bool:
        return is_recovering(world, world.task("a/0"))

    return directed(
        seed,
        line(RICH, RICH, RICH),
        [
            at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=10),
            at(delivered(LogRequest), kills("b/0"), upstream_gathers),
        ],
    )


@directed_test("21 downstream dies while its upstream replays")
def _downstream_of_replay(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [
            at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=10),
            at("emission", kills("b/0"), both(about("a/0"), by_successor)),
        ],
    )


def _pairs(job: FuzzJob) -> None:
    """Builds lanes that cross before ``b``: of two domains, one hosts ``source/0`` and ``a/0``, the other ``b/1``."""
    before = job.add("source", RICH, 2)
    for name, partitioning in (("a", Partitioning.FORWARD), ("b", Partitioning.HASH)):
        vertex = job.add(name, RICH, 2)
        job.connect(before, vertex, partitioning)
        before = vertex
    job.connect(before, job.add_sink(TRANSACTIONAL))


def _linked(replicas_missing: int, **settings: int) -> DirectedTest:
    """Delays the keeper: the log of ``source/0`` at ``a/0`` is in one domain only, so it was also sent to ``b/1``."""

    def make(seed: int) -> World:
        kill = at("batch delivered", kills_domain_of("a/0"), along("a/0", "b/1"), nth=5)
        late = lost(AppendLog, both(about("source/0"), before(kill)), nth=replicas_missing + 1, times=1_000)
        options = {"replicas": 1, "checkpoint_every_ms": 300}
        return directed(seed, _pairs, [late, kill], options, {"domains": 2, **settings})

    return make


DIRECTED_TESTS["22 linked tasks die before the keeper has any of their logs"] = _linked(0)
DIRECTED_TESTS["22 linked tasks die while the keeper has a part of their logs"] = _linked(
    2, network_ns_max=10 * MILLISECOND_NS
)


def _lanes(job: FuzzJob) -> None:
    """Builds two lanes: of two domains, one hosts ``source/0`` and ``sink/0``."""
    source = job.add("source", RICH, 2)
    job.connect(source, job.add_sink(IMMEDIATE, 2), Partitioning.FORWARD)


@directed_test("22 linked tasks die, and the keeper with both logs is dropped")
def _keeper_of_both_is_dropped(seed: int) -> World:
    """Only the keeper of ``sink/0`` holds the end of the log of ``source/0``. The successor of the sink runs beside it,
    with another keeper; log requests to the first keeper are lost until it is gone."""

    def is_to_the_first_keeper(world: SimCluster, reached: PointReached) -> bool:
        message: Any = reached.message
        asked = (world.plan.task_name(message.task), world.plan.task_name(message.holder), message.is_keeper)
        first = world.views[0].placements[world.task("sink/0")].keepers[0]
        return asked == ("source/0", "sink/0", True) and reached.receiver == first

    kill = at(delivered(AppendAck), kills_domain_of("sink/0"), about("sink/0"), nth=5)
    late = lost(AppendLog, both(about("source/0"), before(kill)), nth=2, times=1_000)
    deaf = lost(LogRequest, both(is_to_the_first_keeper, after(kill)), times=1_000)
    options = {"replicas": 1, "checkpoint_every_ms": 300}
    return directed(seed, _lanes, [late, kill, deaf], options, {"domains": 2})


@directed_test("22 linked tasks die after the keeper with both logs")
def _keeper_of_both_dies_first(seed: int) -> World:
    """Only the keeper of ``sink/0`` holds the end of the log of ``source/0``. It dies alone; both tasks die when
    another keeper is ready, and no determinant was recorded since."""

    def keeper(world: SimCluster, number: int) -> SlotId:
        return world.views[number].placements[world.task("sink/0")].keepers[0]

    def keeper_dies(world: SimCluster, reached: PointReached) -> None:
        world.kill(world.slots[keeper(world, -1)])

    def is_of_another_one(world: SimCluster, reached: PointReached) -> bool:
        return reached.name_in(world) == "sink/0" and reached.sender != keeper(world, 0)

    alone = at(delivered(AppendAck), keeper_dies, about("sink/0"), nth=5)
    both_die = at(delivered(AppendAck), kills_domain_of("sink/0"), both(after(alone), is_of_another_one))
    late = lost(AppendLog, both(about("source/0"), before(both_die)), nth=2, times=1_000)
    options = {"replicas": 1, "checkpoint_every_ms": 2_000, "standbys": 0, "heartbeat_ms": 20}
    settings = {"domains": 2, "spare_slots": 4, "step_ns_max": 150 * MILLISECOND_NS}
    return directed(seed, _lanes, [late, alone, both_die], options, settings)


@directed_test("22 sink dies with its old keeper when the new one is ready")
def _sink_with_its_old_keeper(seed: int) -> World:
    """The domain of the first keeper has died. The sink shares a domain with its second keeper, and dies when the third
    one has just become ready, which the coordinator does not know: it relies on the second one."""

    def keepers(world: SimCluster) -> tuple[SlotId, ...]:
        return world.view.placements[world.task("sink/0")].keepers

    def is_to_the_new_one(world: SimCluster, reached: PointReached) -> bool:
        return len(keepers(world)) == 2 and reached.receiver == keepers(world)[1]

    def is_of_the_new_one(world: SimCluster, reached: PointReached) -> bool:
        return len(keepers(world)) == 2 and reached.sender == keepers(world)[1]

    def both_die(world: SimCluster, reached: PointReached) -> None:
        slot = world.slot_of(reached.known_task)
        world.kill(world.slots[keepers(world)[0]])
        if slot is not None:
            world.suspect(slot, 0)  # so that the coordinator learns of this death first

    def domain_dies(world: SimCluster, reached: PointReached) -> None:
        world.kill_domain(world.slots[keepers(world)[0]].domain)

    first = at(EXTERNAL_WRITTEN, domain_dies, nth=6)
    late = lost(AppendLog, both(after(first), is_to_the_new_one), times=3)
    return directed(
        seed,
        line(RICH, RICH, sink=IMMEDIATE),
        [first, late, at(delivered(AppendAck), both_die, both(after(late), is_of_the_new_one))],
        options={"standbys": 0},
        settings={"domains": 2, "spare_slots": 3, "fresh_slot_ns_max": 800 * MILLISECOND_NS},
        records=300,
    )


@directed_test("36 log has a hole where more domains die than there are replicas")
def _hole(seed: int) -> World:
    """The successor of ``a/0`` holds the end of the log of ``source/0``, which its keeper lacks, but no more."""

    def is_to_the_successor(world: SimCluster, reached: PointReached) -> bool:
        message: Any = reached.message
        return bool(message.receiver & 0xFFFFFFFF > 1)

    first = at("batch delivered", kills("a/0"), along("source/0", "a/0"), nth=6)
    both_die = both(both(along("source/0", "a/0"), is_to_the_successor), after(first))
    return directed(
        seed,
        line(RICH, RICH, RICH, sink=TRANSACTIONAL),
        [first, at("batch delivered", kills_with_keepers("source/0"), both_die, nth=3)],
        options={"replicas": 1, "checkpoint_every_ms": 300},
    )


@directed_test("23 standby dies")
def _standby_dies(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [at("complete", in_turn((0, kills_standbys("a/0")), (60, kills("a/0"))), nth=2)],
    )


@directed_test("23 primary and standby die")
def _primary_and_standby(seed: int) -> World:
    return directed(seed, line(RICH, RICH, RICH), [at("complete", kills_standbys("a/0", with_task=True), nth=2)])


@directed_test("23 coordinator dies during a recovery")
def _coordinator_during_recovery(seed: int) -> World:
    killed = at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=8)
    return directed(seed, line(RICH, RICH, RICH), [killed, at("view issued", restarts_coordinator(20), after(killed))])


_PAUSES_MS = {"below the lease": 200, "beyond the lease": 1_500}


def _pauses(name: str, pause_ms: int) -> DirectedTest:
    return lambda seed: directed(
        seed, line(RICH, RICH, sink=IMMEDIATE), [at("batch delivered", pauses(name, pause_ms), nth=20)]
    )


for _name, _pause_ms in _PAUSES_MS.items():
    for _task in ("a/0", "sink/0"):
        DIRECTED_TESTS[f"24 {_task} is paused {_name}"] = _pauses(_task, _pause_ms)


@directed_test("24 suspected sink writes on")
def _suspected_sink(seed: int) -> World:
    return directed(seed, line(RICH, RICH, sink=IMMEDIATE), [at(EXTERNAL_WRITTEN, suspects("sink/0", 300), nth=6)])


@directed_test("24 suspected task sends on")
def _suspected_task(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [at("batch delivered", suspects("a/0", 300), along("a/0", "b/0"), nth=6)],
        settings={"network_ns_max": 20 * MILLISECOND_NS},
    )


@directed_test("25 checkpoint is triggered during a recovery")
def _checkpoint_during_recovery(seed: int) -> World:
    def is_down(world: SimCluster, reached: PointReached) -> bool:
        task = world.task("a/0")
        has_started = world.view.placements[task].incarnation in world.oracle.incarnations[task]
        return world.slot_of(task) is None or not has_started

    killed = at(sent(TriggerCheckpoint), kills("a/0"), nth=3)
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [killed, at(delivered(TriggerCheckpoint), nothing, is_down)],
        options={"standbys": 0},
    )


_CONNECTION = {
    "cut": (50, False),
    "cut beyond the lease": (1_500, False),
    "reset": (0, False),
    "half-open": (100, True),
}


def _breaks(cut_ms: int, half_open: bool) -> DirectedTest:
    return lambda seed: directed(
        seed,
        line(RICH, RICH, RICH),
        [at("batch delivered", cuts("a/0", "b/0", cut_ms, half_open), along("a/0", "b/0"), nth=6)],
    )


for _name, (_cut_ms, _half_open) in _CONNECTION.items():
    DIRECTED_TESTS[f"26 connection is {_name}"] = _breaks(_cut_ms, _half_open)


@directed_test("26 connection is reset with a batch on its way")
def _reset_with_a_batch(seed: int) -> World:
    return directed(seed, line(RICH, RICH, RICH), [at("batch sent", cuts("a/0", "b/0", 0), along("a/0", "b/0"), nth=6)])


@directed_test("26 connection is reset with deltas on their way, then their owner dies")
def _reset_with_deltas(seed: int) -> World:
    """The heartbeat carries deltas of the source; the next message of the channel does not."""

    def has_deltas_of_the_source(world: SimCluster, message: Any) -> bool:
        return any(owner_of(delta.log) == world.task("source/0") for delta in message.deltas)

    reset = at(
        "position sent",
        cuts("a/0", "b/0", 0),
        both(along("a/0", "b/0"), message_has(has_deltas_of_the_source)),
        nth=2,
    )
    return directed(
        seed,
        line(RICH, TIMED, RICH, sink=TRANSACTIONAL),
        [reset, at("batch delivered", kills("source/0", "a/0"), both(along("a/0", "b/0"), after(reset)))],
        options={"heartbeat_ms": 20, "checkpoint_every_ms": 300},
        settings={"network_ns_max": MILLISECOND_NS // 5},
    )


@directed_test("24 suspected task calls on")
def _suspected_caller(seed: int) -> World:
    return directed(seed, line(RICH, EFFECTS, RICH), [at("called", suspects("a/0", 300), about("a/0"), nth=6)])


@directed_test("24 suspected task sends on to a slot with an older view")
def _suspected_task_is_received(seed: int) -> World:
    suspected = at("batch delivered", suspects("a/0", 300), along("a/0", "b/0"), nth=6)
    deaf = lost(View, both(after(suspected), received_by("b/0")), times=2)
    return directed(seed, line(RICH, RICH, RICH, sink=TRANSACTIONAL), [suspected, deaf])


@directed_test("21 holder dies before it answers")
def _holder_dies(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [
            at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=10),
            at(sent(LogRequest), kills("b/0"), received_by("b/0")),
        ],
    )

"""Directed tests 31 to 35 of the conformance list: around a checkpoint, and messages of dead incarnations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clonos.core.wire.control_messages import Completed, Snapshotted, View
from clonos.core.wire.replication_messages import AppendAck, StandbyUpdate
from clonos_chaos.project.directed.building_blocks import (
    EXTERNAL_OPENED,
    IMMEDIATE,
    RICH,
    TIMED,
    TRANSACTIONAL,
    about,
    after,
    at,
    before,
    both,
    by_successor,
    cuts,
    directed,
    directed_test,
    in_turn,
    kills,
    kills_it,
    line,
    lost,
    message_has,
    nothing,
    received_by,
    suspects,
)
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.targeted_faults import PointReached, delivered
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World


@directed_test("31 sink dies after a complete checkpoint")
def _sink_dies_after_a_checkpoint(seed: int) -> World:
    waiting = at("aligned", nothing, _has_unreleased_output)
    late = lost(AppendAck, both(about("sink/0"), after(waiting)), times=5)
    keepers_are_silent = lost(AppendAck, both(about("sink/0"), before(waiting)), nth=8, times=1_000)
    return directed(
        seed,
        line(RICH, RICH, sink=IMMEDIATE),
        [keepers_are_silent, waiting, late, at("complete", kills("sink/0"), after(waiting))],
    )


def _has_unreleased_output(world: SimCluster, reached: PointReached) -> bool:
    slot = world.slot_of(reached.known_task)
    hosted = slot.slot.hosted.get(reached.known_task) if slot is not None else None
    external = hosted.output_gate.external if hosted is not None else None
    return external is not None and bool(external.releases)


@directed_test("32 task dies while metadata is written")
def _task_dies_while_committing(seed: int) -> World:
    return directed(
        seed,
        line(RICH, TIMED, RICH),
        [at("metadata begun", suspects("a/0", 5), nth=2)],
        settings={"store_ns_max": 40 * MILLISECOND_NS},
    )


@directed_test("33 complete is lost on its way to the next standby")
def _standby_misses_complete(seed: int) -> World:
    killed = at("complete", kills("a/0"), nth=3)

    def to_the_standby(world: SimCluster, reached: PointReached) -> bool:
        return reached.receiver in world.view.placements[world.task("a/0")].standbys

    return directed(seed, line(RICH, RICH, RICH), [killed, lost(Completed, to_the_standby, nth=2, times=500)])


@directed_test("33 standby has later changes than the view names")
def _standby_is_ahead(seed: int) -> World:
    def is_ahead(world: SimCluster, message: Any) -> bool:
        return bool(world.plan.task_name(message.task) == "a/0" and message.checkpoint > max(world.chain, default=99))

    kill = at(delivered(StandbyUpdate), kills("a/0"), message_has(is_ahead), nth=2)
    return directed(seed, line(RICH, RICH, RICH), [kill])


@directed_test("33 standby has changes of a dead incarnation")
def _standby_of_the_dead(seed: int) -> World:
    """No receiver has seen the barrier of these changes, so the successor makes another one with the same number."""
    alone = at("aligned", cuts("a/0", "b/0", 2_000), about("a/0"), nth=2)
    killed = at(delivered(StandbyUpdate), kills("a/0"), both(about("a/0"), after(alone)))
    again = at("complete", in_turn((20, kills("a/0"))), after(killed), nth=2)
    return directed(seed, line(RICH, TIMED, RICH), [alone, killed, again], options={"standbys": 2})


@directed_test("34 task dies just after its barrier, a timer is due")
def _timer_after_barrier(seed: int) -> World:
    return directed(
        seed,
        line(RICH, TIMED, RICH, widths=(2, 1)),
        [at("barrier delivered", kills_it, about("a/0"), nth=2)],
    )


@directed_test("34 source dies just after its barrier")
def _source_after_barrier(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, widths=(2, 1)),
        [at("barrier delivered", kills_it, about("source/0"), nth=2)],
    )


@directed_test("34 task dies just after its end of stream")
def _task_after_end(seed: int) -> World:
    return directed(seed, line(RICH, TIMED, RICH, widths=(2, 1)), [at("end delivered", kills_it, about("a/0"))])


@directed_test("34 source dies just after its end of stream, a barrier is due")
def _source_after_end_with_a_trigger(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [at("end delivered", kills_it, about("source/0"))],
        options={"checkpoint_every_ms": 10},
        settings={"store_ns_max": 60 * MILLISECOND_NS},
    )


@directed_test("34 source dies just after its end of stream")
def _source_after_end(seed: int) -> World:
    return directed(seed, line(RICH, RICH, RICH), [at("end delivered", kills_it, about("source/0"))])


@directed_test("35 acknowledgement of a dead incarnation")
def _late_acknowledgement(seed: int) -> World:
    def is_late(world: SimCluster, reached: PointReached) -> bool:
        message: Any = reached.message
        return bool(world.view.placements[message.task].incarnation != message.incarnation)

    def has_raised(world: SimCluster, reached: PointReached) -> bool:
        return bool(world.job.failed_once) and received_by("a/0")(world, reached)  # type: ignore[attr-defined]

    late = at(delivered(Snapshotted), nothing, is_late)
    kill = at("complete", kills("a/0"), after(late))
    return directed(
        seed,
        line(RICH, replace(RICH, fails_once=25), RICH),
        [late, kill, lost(View, has_raised, times=3)],
        settings={"store_ns_max": 60 * MILLISECOND_NS},
    )


@directed_test("35 sink dies after it has acknowledged")
def _acknowledged_sink_dies(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, sink=TRANSACTIONAL),
        [at(delivered(Snapshotted), kills("sink/0"), about("sink/0"), nth=2)],
        settings={"store_ns_max": 60 * MILLISECOND_NS},
    )


@directed_test("35 acknowledgement of a dead sink")
def _late_acknowledgement_of_a_sink(seed: int) -> World:
    def is_late(world: SimCluster, reached: PointReached) -> bool:
        message: Any = reached.message
        return bool(world.view.placements[message.task].incarnation != message.incarnation)

    def has_raised(world: SimCluster, reached: PointReached) -> bool:
        return bool(world.job.failed_once) and received_by("sink/0")(world, reached)  # type: ignore[attr-defined]

    return directed(
        seed,
        line(RICH, RICH, sink=replace(TRANSACTIONAL, fails_once=25)),
        [at(delivered(Snapshotted), nothing, is_late), lost(View, has_raised, times=3)],
        settings={"store_ns_max": 60 * MILLISECOND_NS},
    )


@directed_test("35 confirmation of the external system for a dead incarnation")
def _late_confirmation(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, sink=replace(IMMEDIATE, fails_once=25)),
        [at(EXTERNAL_OPENED, nothing, by_successor)],
        settings={"external_ns_max": 60 * MILLISECOND_NS},
    )

"""Directed tests 14 and 43 to 49 of the conformance list: calls, budgets, views, end of job, terms, poison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.model.options import OnDivergence, SpillPolicy
from clonos.core.wire.control_messages import View
from clonos.core.wire.replication_messages import AppendLog
from clonos_chaos.jobs.fuzz_chain import Work
from clonos_chaos.jobs.fuzz_jobs import FuzzJob
from clonos_chaos.project.directed.building_blocks import (
    BOTH,
    DIRECTED_TESTS,
    EFFECTS,
    EXTERNAL_OPENED,
    EXTERNAL_WRITTEN,
    IMMEDIATE,
    PLAIN,
    RICH,
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
    kills,
    kills_it,
    line,
    lost,
    nothing,
    replaces_coordinator,
    restarts_coordinator,
    suspects,
)
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.targeted_faults import PointReached, TargetedFault
from clonos_chaos.swarm.quick_worlds import OPTIONS
from clonos_chaos.swarm.world import World

# ------------------------------------------------------------------ 43-46


@directed_test("43 in-flight budget is full with a barrier after")
def _full_budget(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [at("batch delivered", kills("a/0"), about("a/0"), nth=10)],
        options={
            "inflight_disk_bytes": 16_000,
            "inflight_memory_bytes": 2_000,
            "checkpoint_every_ms": 2_000,
            "heartbeat_ms": 20,
            "spill_policy": SpillPolicy.EAGER,
        },
        records=120,
    )


@directed_test("44 slot skips views, one of them a rollback")
def _skipped_views(seed: int) -> World:
    kill = at("batch delivered", kills("a/0", "b/0"), along("b/0", "c/0"), nth=8)
    first = at("rollback issued", in_turn((30, kills("source/0"))))

    def until_after_rollback(world: SimCluster, reached: PointReached) -> bool:
        message: Any = reached.message
        is_deaf = reached.receiver == world.views[0].placements[world.task("sink/0")].slot
        views = world.views
        views_after = [view for view in views if view.generation > views[0].generation]
        return is_deaf and kill.injected > 0 and (not views_after or message.number == views_after[0].number)

    return directed(
        seed,
        line(RICH, RICH, RICH, RICH),
        [kill, first, lost(View, until_after_rollback, times=500)],
        options={"sharing_depth": 1, "lease_ms": 5_000},
    )


@directed_test("44 failure during the rollback")
def _failure_during_rollback(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, RICH),
        [
            at("batch delivered", kills("a/0", "b/0"), along("b/0", "c/0"), nth=8),
            at("rollback issued", kills("c/0")),
        ],
        options={"sharing_depth": 1},
    )


_END_POINTS: dict[str, tuple[TargetedFault, ...]] = {
    "source dies before its final snapshot": (at("end of stream", kills_it, about("source/0")),),
    "source dies with its final snapshot written": (
        at("end of stream", in_turn((12, kills("source/0"))), about("source/0")),
    ),
    "source dies after final": (at("end of stream", kills("source/0"), about("sink/0")),),
    "sink dies before its final snapshot": (at("end of stream", kills_it, about("sink/0")),),
    "sink dies before its last output is confirmed": (
        at("end of stream", in_turn((2, kills("sink/0"))), about("sink/0")),
    ),
}


def _ends(name: str) -> DirectedTest:
    def make(seed: int) -> World:
        targeted_faults = [replace(targeted) for targeted in _END_POINTS[name]]  # a targeted fault counts for one world
        return directed(seed, line(RICH, RICH, RICH), targeted_faults, settings={"external_ns_max": 20_000_000})

    return make


for _name in _END_POINTS:
    DIRECTED_TESTS[f"45 {_name}"] = _ends(_name)


@directed_test("45 task dies when one of its inputs has ended")
def _half_ended(seed: int) -> World:
    def build(job: FuzzJob) -> None:
        line(RICH, RICH, RICH, widths=(2, 1))(job)
        job.is_uneven = True

    ended = at("end delivered", nothing, along("source/0", "a/0"))
    return directed(seed, build, [ended, at("complete", kills("a/0"), after(ended), nth=2)])


@directed_test("45 sink dies before its last commit")
def _last_commit(seed: int) -> World:
    ended = at("end of stream", nothing, about("sink/0"))
    return directed(
        seed,
        line(RICH, RICH, sink=BOTH),
        [ended, at("metadata written", kills("sink/0"), after(ended))],
        settings={"store_ns_max": 60_000_000},
    )


@directed_test("46 two peers cannot reach each other")
def _mutual_suspicion(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [at("batch delivered", cuts("a/0", "b/0", 60_000), along("a/0", "b/0"), nth=6)],
        settings={"patience_ms": 20_000},
    )


_CALL_POINTS: dict[str, TargetedFault] = {
    "before INTENT": at("batch delivered", kills("a/0"), along("source/0", "a/0"), nth=4),
    "between INTENT and the keeper's acknowledgement": at("intent", kills_it, about("a/0"), nth=7),
    "between the acknowledgement and the call": at("call", kills_it, about("a/0"), nth=7),
    "between the call and CALL": at("called", kills_it, about("a/0"), nth=7),
}


_DOUBTS = {"again": "", "reconcile": ", and the external system is asked", "raise": ", and is not repeated"}


def _calls(when: str, doubt: str) -> DirectedTest:
    return lambda seed: directed(seed, line(PLAIN, replace(EFFECTS, doubt=doubt), RICH), [replace(_CALL_POINTS[when])])


for _when in _CALL_POINTS:
    for _doubt, reports in _DOUBTS.items():
        DIRECTED_TESTS[f"47 task dies {_when}{reports}"] = _calls(_when, _doubt)


_OTHER_WORK = {
    "asks for another call": replace(RICH, diverges=True, varies=True),
    "makes other output": replace(RICH, varies=True, calls=False),
}


def _divergence(work: Work, measure: OnDivergence, times: int) -> DirectedTest:
    def make(seed: int) -> World:
        kill = at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=10)
        again = at("batch delivered", kills("a/0"), both(along("a/0", "b/0"), after(kill)), nth=10)
        options = {
            "on_divergence": measure,
            "checkpoint_every_ms": 10_000 if times > 1 else OPTIONS.checkpoint_every_ms,
        }
        world = directed(seed, line(RICH, work, RICH), [kill, again][:times], options)
        world.expects_divergence, world.expects_failure = True, times > 1 or measure is OnDivergence.FAIL
        return world

    return make


for _what, _work in _OTHER_WORK.items():
    _alike = replace(_work, varies=not _work.diverges)  # the answer of another call makes no other row
    DIRECTED_TESTS[f"14 replay {_what}"] = _divergence(_alike, OnDivergence.FAIL, 1)
    DIRECTED_TESTS[f"14 replay {_what}, and all tasks go back"] = _divergence(_work, OnDivergence.ROLLBACK, 1)
    DIRECTED_TESTS[f"14 replay {_what}, and again after the rollback"] = _divergence(_work, OnDivergence.ROLLBACK, 2)
    DIRECTED_TESTS[f"14 replay {_what}, which the job accepts"] = _divergence(_work, OnDivergence.ACCEPT, 1)


@directed_test("47 task dies while its keeper lacks INTENT")
def _keeper_is_behind(seed: int) -> World:
    late = lost(AppendLog, about("a/0"), nth=10, times=3)
    return directed(seed, line(PLAIN, EFFECTS, RICH), [late, at("called", kills_it, both(about("a/0"), after(late)))])


@directed_test("48 coordinator restarts while tasks live on")
def _coordinator_restarts(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [at("batch delivered", restarts_coordinator(20), along("a/0", "b/0"), nth=8)],
    )


@directed_test("48 coordinator that knows its slots restarts, and their first answers are lost")
def _answers_of_named_slots_are_lost(seed: int) -> World:
    first = at("batch delivered", restarts_coordinator(20), along("a/0", "b/0"), nth=8)
    answers = both(after(first), lambda world, reached: reached.receiver == COORDINATOR)
    world = directed(seed, line(RICH, RICH, RICH), [first, lost(View, answers, times=15)])
    world.names_slots = world.survives_all = True
    return world


@directed_test("48 coordinator that knows its slots restarts while one of them dies")
def _named_slot_dies(seed: int) -> World:
    def dies(world: SimCluster, reached: PointReached) -> None:
        world.restart_coordinator(20)
        world.kill_tasks([world.task("b/0")])

    world = directed(seed, line(RICH, RICH, RICH), [at("batch delivered", dies, along("a/0", "b/0"), nth=8)])
    world.names_slots = world.survives_all = True
    return world


@directed_test("48 old coordinator wakes up while it was committing")
def _old_coordinator_wakes(seed: int) -> World:
    return directed(seed, line(RICH, RICH, RICH), [at("metadata begun", replaces_coordinator(300), nth=2)], records=90)


@directed_test("48 all that know a later generation die, and a slot that does not know it resumes")
def _later_generation_is_forgotten(seed: int) -> World:
    asleep: list[SimSlot] = []

    def all_but_one(world: SimCluster, reached: PointReached) -> None:
        asleep.append(world.slot_of(world.task("a/0")))  # type: ignore[arg-type]
        world.pause(asleep[0], 1_000)
        kills_all_others(world, reached)

    def kills_all_others(world: SimCluster, _reached: PointReached) -> None:
        world.restart_coordinator(20)
        world.kill_together([slot for slot in world.living() if slot is not asleep[0]])

    first = at(EXTERNAL_WRITTEN, all_but_one, nth=4)
    again = at(EXTERNAL_WRITTEN, kills_all_others, after(first))
    return directed(seed, line(RICH, RICH, sink=IMMEDIATE), [again, first])


@directed_test("48 all that know a later incarnation of a sink die, and the coordinator")
def _later_life_is_forgotten(seed: int) -> World:
    def in_the_know(world: SimCluster) -> set[SlotId]:
        placement = world.view.placements[world.task("sink/0")]
        return {placement.hosting_slot, *placement.keepers}

    def forgets(world: SimCluster, _reached: PointReached) -> None:
        world.restart_coordinator(20)
        world.kill_together([world.slots[slot] for slot in sorted(in_the_know(world))])

    first = at(EXTERNAL_WRITTEN, suspects("sink/0", 60_000), nth=4)
    second = at(EXTERNAL_OPENED, forgets, both(about("sink/0"), by_successor))
    unheard = both(
        after(first), both(before(second), lambda world, reached: reached.receiver not in in_the_know(world))
    )
    return directed(seed, line(RICH, RICH, sink=IMMEDIATE), [second, first, lost(View, unheard, times=1_000)])


@directed_test("49 poison record whose inputs merge differently")
def _poison(seed: int) -> World:
    world = directed(
        seed,
        diamond(join=replace(RICH, poison=20)),
        [at("start", nothing, about("join/0"), nth=2)],
        options={"step_records_max": 8, "step_records_first": 8},
    )
    world.expects_failure = True
    return world

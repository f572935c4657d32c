"""Directed tests 22, 28 to 30, 34, 36 to 42 of the conformance list: lost logs, keepers, messages, sinks; batches."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from clonos.core.model.ids import owner_of
from clonos.core.model.plan import Partitioning
from clonos.core.wire.channel_messages import ChannelHandshake
from clonos.core.wire.control_messages import Completed, Register, SlotStatus, Snapshotted, TriggerCheckpoint, View
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import LogLost, LogReply, LogRequest
from clonos.core.wire.replication_messages import AppendAck, AppendLog
from clonos_chaos.jobs.flushed_jobs import FlushedJob
from clonos_chaos.jobs.fuzz_chain import Work
from clonos_chaos.project.directed.building_blocks import (
    BOTH,
    DIRECTED_TESTS,
    EFFECTS,
    EXTERNAL_WRITTEN,
    IMMEDIATE,
    RICH,
    TRANSACTIONAL,
    DirectedTest,
    about,
    after,
    along,
    at,
    both,
    by_receiver_of,
    cuts,
    diamond,
    directed,
    directed_test,
    in_turn,
    is_recovering,
    kills,
    kills_all_but,
    kills_domain_of,
    kills_it,
    kills_with_keepers,
    line,
    lost,
    nothing,
    received_by,
    suspects,
)
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_tables import ExternalKind
from clonos_chaos.sim.targeted_faults import PointReached, Where, delivered, sent
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS
from clonos_chaos.swarm.world import World

# ------------------------------------------------------------------ 36, 37: lost logs and keepers


@directed_test("36 log is lost beyond the sharing depth")
def _log_is_lost(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, RICH, sink=BOTH),
        [at("batch delivered", kills("a/0", "b/0"), along("b/0", "c/0"), nth=8)],
        options={"sharing_depth": 1},
    )


@directed_test("36 log is lost with output on its way")
def _log_is_lost_with_output_on_its_way(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, sink=IMMEDIATE),
        [at(EXTERNAL_WRITTEN, kills("source/0", "a/0"), nth=4)],
        options={"sharing_depth": 1},
        settings={"external_ns_max": 100 * MILLISECOND_NS},
    )


@directed_test("36 log is lost while a suspected sink writes on")
def _log_is_lost_and_a_sink_writes_on(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, sink=IMMEDIATE),
        [at(EXTERNAL_WRITTEN, in_turn((0, suspects("sink/0", 1_000)), (1, kills("source/0", "a/0"))), nth=4)],
        options={"sharing_depth": 1},
        settings={"external_ns_max": 200 * MILLISECOND_NS},
    )


@directed_test("36 log is lost and two paths remember it differently")
def _log_is_lost_in_a_diamond(seed: int) -> World:
    return directed(
        seed,
        diamond(),
        [at("batch delivered", kills("source/0", "left/0", "right/0"), along("left/0", "join/0"), nth=6)],
        options={"sharing_depth": 1},
    )


@directed_test("37 sink dies while its keeper is behind")
def _keeper_is_behind(seed: int) -> World:
    late = lost(AppendLog, about("sink/0"), nth=10, times=3)
    return directed(seed, line(RICH, RICH, sink=IMMEDIATE), [late, at(EXTERNAL_WRITTEN, kills("sink/0"), after(late))])


@directed_test("37 all but the keeper die")
def _all_but_the_keeper(seed: int) -> World:
    return directed(
        seed,
        line(RICH, sink=IMMEDIATE),
        [at(EXTERNAL_WRITTEN, kills("source/0", "sink/0"), nth=8)],
        options={"standbys": 0},
        settings={"spare_slots": 2},
    )


@directed_test("37 sink and keeper die together")
def _sink_and_keeper(seed: int) -> World:
    return directed(seed, line(RICH, RICH, sink=IMMEDIATE), [at(EXTERNAL_WRITTEN, kills_with_keepers("sink/0"), nth=8)])


@directed_test("37 message to the keeper is lost that had the causes of the next one")
def _causes_are_lost_on_their_way_to_the_keeper(seed: int) -> World:
    def carries(of_sink: bool, of_task: bool) -> Where:
        def where(world: SimCluster, reached: PointReached) -> bool:
            message: Any = reached.message
            borne = {world.plan.task_name(owner_of(delta.log)) for delta in message.deltas}
            return world.plan.task_name(message.task) == "sink/0" and ("sink/0" in borne, "a/0" in borne) == (
                of_sink,
                of_task,
            )

        return where

    causes = lost(AppendLog, carries(False, True), nth=2)
    kill = at(delivered(AppendLog), kills("a/0", "sink/0"), both(carries(True, False), after(causes)))
    return directed(
        seed,
        line(RICH, RICH, sink=IMMEDIATE),
        [causes, kill],
        options={"standbys": 0},
        settings={"spare_slots": 2},
    )


@directed_test("37 sink dies while its keeper is replaced")
def _sink_during_keeper_change(seed: int) -> World:
    """The successor has to run in the keeper's domain, so that another keeper is named beside the old one."""

    def keepers_change(world: SimCluster, reached: PointReached) -> bool:
        task = world.task("sink/0")
        earlier, now = (view.placements[task] for view in world.views[-2:])
        return (
            now.incarnation & 0xFFFFFFFF > 1
            and earlier.incarnation == now.incarnation
            and earlier.keepers != now.keepers
        )

    first = at(EXTERNAL_WRITTEN, kills("sink/0"), nth=6)
    return directed(
        seed,
        line(RICH, RICH, sink=IMMEDIATE),
        [first, at("view issued", kills("sink/0"), both(after(first), keepers_change))],
        options={"standbys": 0},
        settings={"domains": 2, "spare_slots": 0},
    )


# ------------------------------------------------------------------ 38, 39: lost control messages


CONTROL_MESSAGES = (
    LogRequest,
    LogReply,
    AppendLog,
    AppendAck,
    View,
    TriggerCheckpoint,
    Snapshotted,
    Completed,
    SlotStatus,
)


def _loses_control(message: type[Message]) -> DirectedTest:
    def make(seed: int) -> World:
        kill = at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=6)
        again = at("complete", kills("b/0"), after(kill), nth=2)
        return directed(
            seed,
            line(RICH, RICH, EFFECTS, sink=BOTH),
            [kill, again, lost(message, lambda world, reached: world.view.number > 0, times=3)],
        )

    return make


for _message in CONTROL_MESSAGES:
    DIRECTED_TESTS[f"38 {_message.__name__} is lost"] = _loses_control(_message)


@directed_test("38 ChannelHandshake is lost")
def _lost_handshakes(seed: int) -> World:
    kill = at("batch delivered", kills("b/0"), along("a/0", "b/0"), nth=8)
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [kill, lost(ChannelHandshake, both(after(kill), by_receiver_of("b/0")), times=4)],
    )


@directed_test("38 more triggers are lost than may be pending")
def _many_lost_triggers(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH),
        [lost(TriggerCheckpoint, about("source/0"), nth=2, times=20)],
        options={"checkpoint_every_ms": 20, "heartbeat_ms": 20},
        settings={"step_ns_max": 20 * MILLISECOND_NS, "patience_ms": 800},
        records=600,
    )


@directed_test("38 every completion is lost on its first way to one slot")
def _first_completions_are_lost(seed: int) -> World:
    lost_already: list[int] = []

    def is_first(world: SimCluster, reached: PointReached) -> bool:
        completed: Any = reached.message
        if not received_by("a/0")(world, reached):
            return False
        is_new = completed.checkpoint not in lost_already
        lost_already.append(completed.checkpoint)
        return is_new

    return directed(
        seed,
        line(RICH, RICH),
        [lost(Completed, is_first, times=1_000)],
        settings={"step_ns_max": 20 * MILLISECOND_NS, "patience_ms": 1_500},
        options={"checkpoint_every_ms": 100},
        records=600,
    )


@directed_test("38 log requests are lost, and no view asks again")
def _questions_are_lost_without_views(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, sink=TRANSACTIONAL),
        [
            at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=6),
            lost(LogRequest, lambda world, reached: True, times=2),
            lost(Register, lambda world, reached: world.view.number > 0 and world.ending is None, times=1_000),
        ],
        options={"standbys": 0},
        settings={"patience_ms": 2_000},
    )


@directed_test("38 every view is lost on its first way to one slot")
def _first_views_are_lost(seed: int) -> World:
    lost_already: list[tuple[int, int]] = []

    def is_first(world: SimCluster, reached: PointReached) -> bool:
        view: Any = reached.message
        if world.views[0].placements[world.task("b/0")].slot != reached.receiver:
            return False
        is_new = (view.number, reached.receiver) not in lost_already
        lost_already.append((view.number, reached.receiver))
        return is_new

    kill = at("batch delivered", kills("a/0"), along("a/0", "b/0"), nth=6)
    return directed(seed, line(RICH, RICH, RICH), [kill, lost(View, is_first, times=100)])


@directed_test("38 LogLost is lost")
def _lost_is_lost(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, sink=IMMEDIATE),
        [
            at(EXTERNAL_WRITTEN, kills_with_keepers("sink/0"), nth=8),
            lost(LogLost, lambda world, reached: True, times=2),
        ],
    )


_TRIGGER_POINTS = {
    "before TRIGGER is recorded": (delivered(TriggerCheckpoint), received_by("source/0")),
    "with its barrier unsent": ("aligned", about("source/0")),
    "with its barrier on its way": ("barrier sent", about("source/0")),
    "with its snapshot written": ("snapshot written", about("source/0")),
}


def _loses_trigger(point: str, where: Any) -> DirectedTest:
    return lambda seed: directed(seed, line(RICH, RICH, widths=(2, 1)), [at(point, kills("source/0"), where, nth=2)])


for _when, (_point, _where) in _TRIGGER_POINTS.items():
    DIRECTED_TESTS[f"39 trigger dies with its source {_when}"] = _loses_trigger(_point, _where)


@directed_test("39 one source receives a later trigger only")
def _later_trigger_only(seed: int) -> World:
    """Its barrier stands for the earlier barrier of the other source, for which the input is held."""
    deaf = lost(TriggerCheckpoint, about("source/1"), nth=2, times=4)
    return directed(seed, line(RICH, RICH, widths=(2, 1)), [deaf], settings={"patience_ms": 1_000}, records=200)


# ------------------------------------------------------------------ 40-42: together, in turn, in other pieces


@directed_test("40 one slot hosts a task and its downstream")
def _task_with_its_downstream(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, RICH, sink=IMMEDIATE),
        [at("batch delivered", kills("a/0"), about("a/0"), nth=8)],
        settings={"tasks_a_slot": 2, "spare_slots": 0, "domains": 20},
    )


@directed_test("40 one domain hosts half of the job")
def _half_of_the_job(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, RICH, sink=IMMEDIATE),
        [at("batch delivered", kills_domain_of("a/0"), about("a/0"), nth=8)],
        settings={"domains": 2},
    )


@directed_test("41 two recovering tasks ask each other")
def _two_ask_each_other(seed: int) -> World:
    def holder_recovers(world: SimCluster, reached: PointReached) -> bool:
        message: Any = reached.message
        return not message.is_keeper and is_recovering(world, message.holder)

    return directed(
        seed,
        line(RICH, RICH, RICH, RICH),
        [
            at("batch delivered", kills("a/0", "b/0"), along("b/0", "c/0"), nth=16),
            at(delivered(LogRequest), nothing, holder_recovers),
        ],
        options={"standbys": 0},
        settings={"store_ns_max": 60 * MILLISECOND_NS},
    )


@directed_test("41 second death before replicas are refilled")
def _second_death(seed: int) -> World:
    """The first successor has the log of ``a`` only from holders that die now, and nothing from ``a`` itself yet."""

    def is_sent_by_the_successor(world: SimCluster, reached: PointReached) -> bool:
        message: Any = reached.message
        return bool(message.receiver & 0xFFFFFFFF > 1)

    first = at("batch delivered", kills("b/0"), along("b/0", "c/0"), nth=6)
    second = at(
        delivered(ChannelHandshake), kills("a/0", "c/0", "sink/0"), both(along("a/0", "b/0"), is_sent_by_the_successor)
    )
    return directed(seed, line(RICH, RICH, RICH, RICH, sink=TRANSACTIONAL), [first, second])


@directed_test("42 replay of batches larger than the credit window")
def _small_window(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, widths=(2, 1)),
        [at("batch delivered", kills("a/0"), about("a/0"), nth=4)],
        options={"credit_window_bytes": 300, "step_records_max": 16, "step_records_first": 16},
    )


@directed_test("42 rows are routed in turn")
def _routed_in_turn(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, widths=(2, 3, 2), partitioning=Partitioning.REBALANCE),
        [at("complete", kills("source/0", "a/1"), nth=2)],
    )


@directed_test("42 one huge element")
def _huge_element(seed: int) -> World:
    return directed(
        seed,
        line(replace(RICH, padding=(20, 20_000)), RICH, RICH),
        [
            at(
                "batch delivered",
                kills("a/0"),
                both(along("source/0", "a/0"), lambda world, reached: world.job.inputs[0] != []),  # type: ignore[attr-defined]
                nth=8,
            )
        ],
        options={"credit_window_bytes": 300},
    )


@directed_test("42 credit is lost at a disconnect")
def _lost_credit(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH),
        [
            lost(ChannelHandshake, along("source/0", "a/0"), nth=4, times=2),
            at(sent(ChannelHandshake), cuts("source/0", "a/0", 5), along("source/0", "a/0"), nth=4),
            at("batch delivered", kills("b/0"), about("a/0"), nth=12),
        ],
        options={"credit_window_bytes": 1},
    )


@directed_test("22 linked tasks die within the sharing depth")
def _within_the_depth(seed: int) -> World:
    return directed(
        seed,
        line(RICH, RICH, RICH, RICH, sink=TRANSACTIONAL),
        [at("batch delivered", kills("a/0", "b/0"), along("b/0", "c/0"), nth=8)],
        options={"sharing_depth": 2},
    )


@directed_test("37 all processes but one die, and others come")
def _all_but_one(seed: int) -> World:
    """The sink survives with the logs of all tasks. The tasks share its process until other processes come."""
    targeted = at(EXTERNAL_WRITTEN, kills_all_but("sink/0"), nth=20)
    return directed(seed, line(RICH, RICH, RICH, sink=IMMEDIATE), [targeted], records=150)


@directed_test("34 task whose rows wait for a flush dies just after a barrier")
def _flushed_dies(seed: int) -> World:
    return World(
        seed,
        options=replace(OPTIONS, checkpoint_every_ms=10, credit_window_bytes=300),
        settings=SETTINGS,
        job=lambda rng: FlushedJob("flushed", Random(rng.getrandbits(64)), 200, None),
        targeted_faults=[at("aligned", kills_it, nth=nth) for nth in (6, 12, 18)],
    )


@directed_test("29 writer of a table dies")
def _writer_dies(seed: int) -> World:
    targeted_faults = [at(EXTERNAL_WRITTEN, kills("sink/0"), nth=nth) for nth in (4, 12)]
    return directed(seed, line(RICH, RICH, sink=IMMEDIATE), targeted_faults, external=ExternalKind.SQLITE)


def _writer_dies_with_keepers(kind: ExternalKind) -> DirectedTest:
    """Kills the sink with its keepers twice: the second time in the generation that began with the first."""
    targeted_faults = [at(EXTERNAL_WRITTEN, kills_with_keepers("sink/0"), nth=nth) for nth in (6, 14)]
    return lambda seed: directed(
        seed,
        line(RICH, RICH, sink=IMMEDIATE, widths=(1, 2, 2)),
        [replace(targeted) for targeted in targeted_faults],
        external=kind,
    )


@directed_test("30 successor of a writer whose log is lost dies too")
def _successor_dies(seed: int) -> World:
    """The stream does not say what it has, and the keepers of the first successor must not tell the second
    successor that they have the log."""
    first = at(EXTERNAL_WRITTEN, kills_with_keepers("sink/0"), nth=6)
    second = at("log end", kills("sink/0"), both(about("sink/0"), after(first)))
    unheard = lost(LogLost, after(first))
    job = line(RICH, RICH, sink=IMMEDIATE, widths=(1, 2, 2))
    return directed(seed, job, [first, second, unheard], external=ExternalKind.FORGETTING)


_SNAPSHOT = ("aligned", "snapshot written", "metadata begun", "metadata written", "complete")


def _sink_dies(point: str, sink: Work, **options: Any) -> DirectedTest:
    targeted = at(point, kills("sink/0"), nth=4)
    return lambda seed: directed(seed, line(RICH, RICH, sink=sink), [replace(targeted)], options=options)


for _point in (*_SNAPSHOT, "committed"):
    DIRECTED_TESTS[f"28 transactional sink dies at {_point}"] = _sink_dies(_point, TRANSACTIONAL)
for _point in (*_SNAPSHOT, EXTERNAL_WRITTEN):
    DIRECTED_TESTS[f"29 immediate sink dies at {_point}"] = _sink_dies(_point, IMMEDIATE)
DIRECTED_TESTS["30 immediate sink without keepers dies"] = _sink_dies(EXTERNAL_WRITTEN, IMMEDIATE, keepers=0)
for _kind in ExternalKind:
    if _kind is not ExternalKind.ALARMING:
        _what = "stream" if _kind is ExternalKind.FORGETTING else "table"
        DIRECTED_TESTS[f"30 writer of a {_what} dies with its keepers: {_kind}"] = _writer_dies_with_keepers(_kind)
DIRECTED_TESTS["30 transactional sink without keepers dies"] = _sink_dies("snapshot written", TRANSACTIONAL, keepers=0)

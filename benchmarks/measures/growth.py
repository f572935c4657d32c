"""Benchmark: growth with the number of tasks, for a simulated job of four stages, P tasks per stage, all to all.

Every task reads at the same rate for each P. All figures are counts, except the coordinator's processor time: bytes of
determinants sent per record, log memory of a task, messages of a fail-over, and its virtual time.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import Effect, Milestone
from clonos.core.coordinator.coordinator_events import Begin, Event, Received, Ticked
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.channel_messages import Batch, Position
from clonos.core.wire.control_messages import Register, SlotStatus, TaskStatus, View
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import LogReply, LogRequest
from clonos_chaos.jobs.fuzz_chain import Work
from clonos_chaos.jobs.fuzz_jobs import FuzzJob
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.sim.world_settings import WorldSettings
from clonos_chaos.swarm.world import World

STAGES: Final = 4
WIDTHS: Final = (2, 4, 8, 16)
WIDTHS_QUICK: Final = (2, 4, 8)
SHARINGS: Final = (("full sharing", None, None), ("sharing depth 1", 1, None), ("replicas=1", None, 1))
RECORDS_A_SOURCE: Final = 1_000
SEED: Final = 11
KILL_NS: Final = 300 * MILLISECOND_NS
TASKS_OF_TICK: Final = 2_000
TICKS: Final = 80
TICK_NS: Final = 100 * MILLISECOND_NS
RECOVERY_MESSAGES: Final = (LogRequest, LogReply, View)
SETTINGS: Final = WorldSettings(
    step_ns_max=20 * MILLISECOND_NS,
    network_ns_max=MILLISECOND_NS // 5,
    domains=10_000,
    fault_counts=(0,),
    look_every=1 << 60,
)


@dataclass
class Counted:
    """Counters of a world's network."""

    messages: Counter[str] = field(default_factory=Counter)
    delta_bytes: int = 0
    coordinator_ns: int = 0
    log_bytes_max: int = 0
    killed_ns: int = 0
    replayed_ns: int = 0
    recovery_messages: int = 0


def run(session: Session) -> None:
    """Measures full sharing, one hop and one replica by width, then the coordinator's tick."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, depth, replicas in SHARINGS:
        for width in WIDTHS_QUICK if session.is_quick else WIDTHS:
            session.progress(f"{name}, {width} tasks a stage")
            world, counted = _world(width, depth, replicas)
            begun_s = time.process_time()
            outcome = world.run()  # its oracle has checked the output
            taken_s = time.process_time() - begun_s
            records = STAGES * len(world.job.expected())
            figures = {
                "determinants sent": (counted.delta_bytes / records, "bytes a record and task"),
                "log memory of a task, most": (counted.log_bytes_max, "bytes"),
                "messages of a fail-over": (counted.recovery_messages, ""),
                "fail-over, virtual": ((counted.replayed_ns - counted.killed_ns) / 1e6, "ms"),
                "coordinator": (counted.coordinator_ns / outcome.virtual_ms / 1e3, "ms a virtual second"),
                "the world itself": (taken_s, "s"),
            }
            for what, (value, unit) in figures.items():
                session.figure(f"{name}, P={width}: {what}", value, unit)
                if what.startswith(("determinants", "log", "messages")):
                    curves.setdefault(f"{what} ({name})", []).append((width, max(value, 1e-3)))
    plots.lines(
        session.results / "growth.png",
        curves,
        "growth with P",
        ("tasks a stage", "bytes, or messages"),
        is_logarithmic=True,
    )
    statuses_ms, ticks_ms = _beats_ms()
    session.figure(f"coordinator tick for {TASKS_OF_TICK} tasks, median", statistics.median(ticks_ms), "ms", "<= 10")
    session.figure(f"coordinator tick for {TASKS_OF_TICK} tasks, longest", max(ticks_ms), "ms")
    session.figure(f"statuses of {TASKS_OF_TICK} slots, median", statistics.median(statuses_ms), "ms a heartbeat")


def _build(job: FuzzJob, width: int) -> None:
    vertices = [job.add(f"stage{number}", Work(ports=(0,)), width) for number in range(STAGES - 1)]
    vertices.append(job.add_sink(Work(is_sink=True), width))
    for giver, taker in itertools.pairwise(vertices):
        job.connect(giver, taker, Partitioning.REBALANCE)


def _world(width: int, depth: int | None, replicas: int | None) -> tuple[World, Counted]:
    counted = Counted()
    options = Options(
        checkpoint_every_ms=200,
        sharing_depth=depth,
        replicas=replicas,
        step_records_max=16,
        step_records_first=16,
        standbys=1,
        keepers=0,
    )
    records = RECORDS_A_SOURCE * width
    world = World(
        SEED,
        options=options,
        settings=SETTINGS,
        job=lambda rng: FuzzJob("growth", rng, records, depth, lambda job: _build(job, width)),
        targeted_faults=(),
    )
    _listen(world, counted)
    world.clock.after(KILL_NS, _kill, world, counted)
    return world, counted


def _listen(world: World, counted: Counted) -> None:
    machine = world.coordinator.machine
    send, handle = world.network.send, machine.handle

    def counting(sender: int, receiver: int, message: Message, payload: Any) -> None:
        counted.messages[type(message).__name__] += 1
        if isinstance(message, Batch | Position):
            counted.delta_bytes += sum(len(delta.data) for delta in message.deltas)
        if counted.killed_ns and not counted.replayed_ns:
            counted.recovery_messages += isinstance(message, RECOVERY_MESSAGES)
            _look(world, counted)
        send(sender, receiver, message, payload)  # type: ignore[arg-type]

    def handling(*events: Event) -> tuple[Effect, ...]:
        begun_ns = time.process_time_ns()
        effects = handle(*events)
        counted.coordinator_ns += time.process_time_ns() - begun_ns
        return effects

    world.network.send = counting  # type: ignore[method-assign]
    machine.handle = handling  # type: ignore[method-assign]


def _kill(world: World, counted: Counted) -> None:
    """Records the log memory of all tasks, then kills the process of a task in the middle."""
    for slot in world.living():
        for hosted in slot.slot.hosted.values():
            counted.log_bytes_max = max(counted.log_bytes_max, hosted.logs.size_bytes)
    victim = world.slot_of(next(task for task in world.plan.tasks if world.plan.task_name(task) == "stage1/0"))
    assert victim is not None, "it lives when it is killed"
    counted.killed_ns = world.clock.now_ns
    world.kill_together([victim])


def _look(world: World, counted: Counted) -> None:
    recoveries = world.coordinator.machine.recoveries
    if recoveries and all(Milestone.REPLAYED in dict(one.reached) for one in recoveries):
        counted.replayed_ns = world.clock.now_ns


def _beats_ms() -> tuple[list[float], list[float]]:
    """Returns times of a coordinator for the statuses of all slots, and for a tick, over some seconds."""
    width = TASKS_OF_TICK // STAGES
    vertices = tuple(Vertex(f"stage{number}", width, is_source=number == 0) for number in range(STAGES))
    edges = tuple(Edge(number, number + 1, Partitioning.FORWARD, 0) for number in range(STAGES - 1))
    machine = Coordinator(Plan("growth", vertices, edges, TASKS_OF_TICK, 1), Options())
    machine.handle(Begin(1, "growth", TASKS_OF_TICK))
    for slot in map(SlotId, range(1, TASKS_OF_TICK + 1)):
        register = Register(slot, f"domain{slot}", "host", "", "", b"", "", slot, ())
        machine.handle(Received(slot, register, 1))
    view = machine.view
    assert view is not None, "all slots that are needed have registered"
    statuses = _statuses(view)
    statuses_ms: list[float] = []
    ticks_ms: list[float] = []
    for tick in range(TICKS):
        now_ns = 2 + tick * TICK_NS
        begun_ns = time.process_time_ns()
        machine.handle(*(Received(status.slot, status, now_ns) for status in statuses))
        received_ns = time.process_time_ns()
        machine.handle(Ticked(now_ns))
        statuses_ms.append((received_ns - begun_ns) / 1e6)
        ticks_ms.append((time.process_time_ns() - received_ns) / 1e6)
    if machine.phase != "running" or set(machine.phases.values()) != {"live"} or not machine.pending:
        raise WrongResult("the coordinator that was timed has no running job with a checkpoint in progress")
    return statuses_ms, ticks_ms


def _statuses(view: View) -> list[SlotStatus]:
    """Returns the statuses of all slots once each has installed the view."""
    status_of = {
        address.slot: SlotStatus(address.slot, view.number, CheckpointId(0), (), (), ()) for address in view.slots
    }
    for one in view.placements:
        task = TaskStatus(one.task, one.incarnation, TaskPhase.LIVE, ((TaskCounter.BACKLOG_ELEMENTS, 0),))
        home = one.hosting_slot
        status_of[home] = replace(status_of[home], tasks=(*status_of[home].tasks, task))
        for slot in one.standbys:
            status_of[slot] = replace(
                status_of[slot], standbys=(*status_of[slot].standbys, (one.task, CheckpointId(0)))
            )
        for slot in one.keepers:
            status_of[slot] = replace(status_of[slot], keepers=(*status_of[slot].keepers, (one.task, one.incarnation)))
    return list(status_of.values())

"""Building blocks of directed tests: small jobs, worlds without random faults, and faults targeted at a point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from clonos.core.model.ids import TaskId
from clonos.core.model.plan import Partitioning
from clonos.core.recovery.recovery_machine import Recovering
from clonos.core.wire.messages import Message
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.jobs.fuzz_chain import Work
from clonos_chaos.jobs.fuzz_jobs import FuzzJob
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_tables import ExternalKind
from clonos_chaos.sim.targeted_faults import FaultAction, PointReached, TargetedFault, Where, everywhere, loses, sent
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS
from clonos_chaos.swarm.world import World

EXTERNAL_OPENED, EXTERNAL_WRITTEN = FaultPoint.SINK_OPENED, FaultPoint.SINK_WRITTEN

RICH = Work(calls=True, draws=True, reads_clock=True, ports=(0,))
PLAIN = Work(ports=(0,))
TIMED = replace(RICH, windows_ns=15 * MILLISECOND_NS)
EFFECTS = replace(RICH, effects=True)
IMMEDIATE = Work(draws=True, ports=(0,))
TRANSACTIONAL = Work(draws=True, is_sink=True)
BOTH = Work(draws=True, ports=(0,), is_sink=True)


Build = Callable[[FuzzJob], None]
DirectedTest = Callable[[int], World]
"""Makes the world of a seed; the world has not run."""

DIRECTED_TESTS: dict[str, DirectedTest] = {}


def directed_test(name: str) -> Callable[[DirectedTest], DirectedTest]:
    """Registers a directed test under its name: the number in the conformance list, then the fault and the place."""

    def register(make: DirectedTest) -> DirectedTest:
        assert name not in DIRECTED_TESTS, name
        DIRECTED_TESTS[name] = make
        return make

    return register


def line(
    *works: Work, sink: Work = BOTH, widths: Sequence[int] = (), partitioning: Partitioning = Partitioning.HASH
) -> Build:
    """Builds a chain of vertices: ``source``, ``a``, ``b``, ... and ``sink``."""

    def build(job: FuzzJob) -> None:
        names = ("source", "a", "b", "c", "d")
        spread = [*widths, *[1] * (len(works) + 1 - len(widths))]
        before = -1
        for name, work, width in zip(names, works, spread, strict=False):
            vertex = job.add(name, work, width)
            if before >= 0:
                job.connect(before, vertex, partitioning)
            before = vertex
        job.connect(before, job.add_sink(sink, spread[len(works)]), partitioning)

    return build


def diamond(left: Work = RICH, right: Work = RICH, join: Work = RICH, sink: Work = BOTH) -> Build:
    """Builds a diamond: ``source`` feeds ``left`` and ``right``, which meet in ``join``."""

    def build(job: FuzzJob) -> None:
        source = job.add("source", replace(RICH, ports=(0, 1)))
        ends = job.add("left", left), job.add("right", right)
        meeting = job.add("join", join)
        for port, vertex in enumerate(ends):
            job.connect(source, vertex, Partitioning.FORWARD, port)
            job.connect(vertex, meeting)
        job.connect(meeting, job.add_sink(sink))
        job.copies = 2

    return build


def directed(
    seed: int,
    build: Build,
    targeted_faults: Sequence[TargetedFault],
    options: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    records: int = 90,
    external: ExternalKind = ExternalKind.ALARMING,
) -> World:
    """Makes a world with these faults only. ``external``: kind of system that immediate sinks write to."""
    chosen = replace(OPTIONS, **(options or {}))

    def job(rng: Random) -> FuzzJob:
        made = FuzzJob("stage", Random(rng.getrandbits(64)), records, chosen.sharing_depth, build)
        made.external_kind = external
        return made

    return World(
        seed, options=chosen, settings=replace(SETTINGS, **(settings or {})), job=job, targeted_faults=targeted_faults
    )


def at(point: str, action: FaultAction, where: Where = everywhere, nth: int = 1, times: int = 1) -> TargetedFault:
    """Injects a fault at the ``nth`` time that ``point`` is reached where ``where`` holds, ``times`` times."""
    return TargetedFault(point, action, where, nth, times)


# ------------------------------------------------------------------ where


def about(*names: str) -> Where:
    """Holds where one of these tasks reaches the point, or the message is about it or on its output channel."""
    return lambda world, reached: reached.name_in(world) in names


def received_by(name: str) -> Where:
    """Holds for messages to the slot to which the latest view assigns this task."""

    def where(world: SimCluster, reached: PointReached) -> bool:
        return reached.receiver == world.view.placements[world.task(name)].slot

    return where


def along(sender: str, receiver: str) -> Where:
    """Holds for messages of a channel between these two tasks."""

    def where(world: SimCluster, reached: PointReached) -> bool:
        channel = world.plan.channels[reached.message.channel]  # type: ignore[union-attr, index]
        return (_name(world, channel.sender), _name(world, channel.receiver)) == (sender, receiver)

    return where


def by_receiver_of(name: str) -> Where:
    """Holds for handshakes that this task sends as a receiver."""

    def where(world: SimCluster, reached: PointReached) -> bool:
        channel = world.plan.channels[reached.message.channel]  # type: ignore[union-attr, index]
        return _name(world, channel.receiver) == name

    return where


def _name(world: SimCluster, task: TaskId | None) -> str:
    return "" if task is None else world.plan.task_name(task)


def both(one: Where, other: Where) -> Where:
    """Holds where both conditions hold."""
    return lambda world, reached: one(world, reached) and other(world, reached)


def after(targeted: TargetedFault) -> Where:
    """Holds once a fault has been injected."""
    return lambda world, reached: targeted.injected > 0


def before(targeted: TargetedFault) -> Where:
    """Holds until a fault has been injected."""
    return lambda world, reached: targeted.injected == 0


def by_successor(world: SimCluster, reached: PointReached) -> bool:
    """Holds when the current incarnation of the task is not its first."""
    view = world.view
    return reached.task is not None and view.placements[reached.task].incarnation & 0xFFFFFFFF > 1


def message_has(check: Callable[[SimCluster, Any], bool]) -> Where:
    """Holds for messages that pass a check."""
    return lambda world, reached: check(world, reached.message)


# ------------------------------------------------------------------ actions


def kills(*names: str) -> FaultAction:
    """Kills the slots of these tasks at one instant."""
    return lambda world, reached: world.kill_tasks([world.task(name) for name in names])


def kills_it(world: SimCluster, reached: PointReached) -> None:
    """Kills the slot of the task that has reached the point."""
    world.kill_tasks([reached.known_task])


def kills_with_keepers(name: str) -> FaultAction:
    """Kills the slot of a task and the slots of its keepers at one instant."""

    def inject(world: SimCluster, reached: PointReached) -> None:
        world.kill_tasks_with_keepers([world.task(name)])

    return inject


def kills_all_but(name: str) -> FaultAction:
    """Kills all processes but that of a task."""

    def inject(world: SimCluster, reached: PointReached) -> None:
        left = world.slot_of(world.task(name))
        world.kill_together([slot for slot in world.living() if slot is not left])

    return inject


def kills_standbys(name: str, with_task: bool = False) -> FaultAction:
    """Kills the slots of a task's standbys; with ``with_task`` also its own."""

    def inject(world: SimCluster, reached: PointReached) -> None:
        placement = world.view.placements[world.task(name)]
        slots = [*placement.standbys, *([placement.slot] if with_task else [])]
        world.kill_together([world.slots[slot] for slot in slots if slot in world.slots])

    return inject


def kills_domain_of(name: str) -> FaultAction:
    """Kills all slots of a task's domain at one instant."""

    def inject(world: SimCluster, reached: PointReached) -> None:
        slot = world.slot_of(world.task(name))
        if slot is not None:
            world.kill_domain(slot.domain)

    return inject


def pauses(name: str, pause_ms: int) -> FaultAction:
    """Pauses the process of a task."""

    def inject(world: SimCluster, reached: PointReached) -> None:
        slot = world.slot_of(world.task(name))
        if slot is not None:
            world.pause(slot, pause_ms)

    return inject


def cuts(one: str, other: str, cut_ms: int, half_open: bool = False) -> FaultAction:
    """Cuts the connection between the slots of two tasks for a while, or drops one direction of it."""

    def inject(world: SimCluster, reached: PointReached) -> None:
        here, there = world.slot_of(world.task(one)), world.slot_of(world.task(other))
        if here is not None and there is not None and here is not there:
            (world.half_open if half_open else world.cut)(here, there, cut_ms)

    return inject


def suspects(name: str, lives_ms: int) -> FaultAction:
    """Reports the slot of a task as gone to the coordinator, while it lives on for a while."""

    def inject(world: SimCluster, reached: PointReached) -> None:
        slot = world.slot_of(world.task(name))
        if slot is not None:
            world.suspect(slot, lives_ms)

    return inject


def restarts_coordinator(down_ms: int) -> FaultAction:
    """Kills the coordinator; another one takes over."""
    return lambda world, reached: world.restart_coordinator(down_ms)


def replaces_coordinator(pause_ms: int) -> FaultAction:
    """Pauses the coordinator while another one takes over; the old one resumes later."""
    return lambda world, reached: world.replace_coordinator(pause_ms)


def in_turn(*actions: tuple[int, FaultAction]) -> FaultAction:
    """Performs several actions, each some milliseconds after the point."""

    def inject(world: SimCluster, reached: PointReached) -> None:
        for delay_ms, then in actions:
            world.clock.after(delay_ms * MILLISECOND_NS, then, world, reached)

    return inject


def nothing(world: SimCluster, reached: PointReached) -> None:
    """Does nothing: the fault only counts that the point is reached."""


def lost(message: type[Message], where: Where, nth: int = 1, times: int = 1) -> TargetedFault:
    """Loses ``times`` messages of this type where ``where`` holds, from the ``nth`` on."""
    return TargetedFault(sent(message), loses, where, nth, times, is_loss=True)


def is_recovering(world: SimCluster, task: TaskId) -> bool:
    """Returns whether the current incarnation of a task is gathering or restoring."""
    slot = world.slot_of(task)
    hosted = slot.slot.hosted.get(task) if slot is not None else None
    return hosted is not None and isinstance(hosted.state, Recovering)


def not_injected(world: World) -> list[str]:
    """Returns the points whose faults were not injected: this world has not tested its case."""
    return [targeted.point for targeted in world.faults.targeted_faults if not targeted.injected]

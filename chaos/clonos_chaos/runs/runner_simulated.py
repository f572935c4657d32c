"""Runs a scenario in the simulated world, as far as its faults exist there.

The shipped job has a twin there: the same steps, a tenth of the records. A trigger in seconds becomes the share of the
input that the real job has read by then. Durations are in virtual time. The oracle of the world judges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from clonos.core.model.errors import JobError
from clonos.core.model.plan import Partitioning
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.jobs.fuzz_chain import Work
from clonos_chaos.jobs.fuzz_jobs import FuzzJob
from clonos_chaos.runs.observer import Observer
from clonos_chaos.runs.simulated_options import SHARE, ignored_options, options_of, with_hot_standbys
from clonos_chaos.scenario.run_record import Check, Injection, RunRecord, judge
from clonos_chaos.scenario.scenario import (
    BACKUP_PATTERNS,
    STATUS_POINTS,
    TASKLESS,
    FaultKind,
    FaultSpec,
    Pattern,
    Scenario,
    ScenarioOutcome,
    is_fault_point,
)
from clonos_chaos.scenario.scenario_job import pace_of
from clonos_chaos.scenario.victims import Shape, choose, tasks_of
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.targeted_faults import POINTS, PointReached, TargetedFault, is_of_message
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World

TWIN_OF: Final = "described"
ASKING: Final = Work(calls=True, draws=True, reads_clock=True, ports=(0, 1))
WINDOWS: Final = Work(draws=True, windows_ns=20 * MILLISECOND_NS, ports=(0,))
SINK: Final = Work(reads_clock=True, ports=(0,), is_sink=True)
DOWN_MS: Final = 50
"""How long a job is without a coordinator when the driver dies."""

TWINS: Final = {"merge": "sink", "files": "sink", "table": "sink"}
"""Steps of the shipped job that have another name here."""

POINTS_HERE: Final[dict[str, FaultPoint]] = {
    "checkpoint": FaultPoint.COMPLETE,
    "recovering": FaultPoint.START,
    FaultPoint.SNAPSHOT_BEGUN: FaultPoint.ALIGNED,
}
"""Points of real processes with another name here."""

Inject = Callable[[SimCluster, list[SimSlot], FaultSpec], None]


def _each(act: Callable[[SimCluster, SimSlot, FaultSpec], None]) -> Inject:
    def do(world: SimCluster, slots: list[SimSlot], fault: FaultSpec) -> None:
        for slot in slots:
            act(world, slot, fault)

    return do


def _towards_all(act: Callable[[SimCluster, SimSlot, SimSlot, FaultSpec], None]) -> Inject:
    """Makes an injection into the connections of each slot with all others."""

    def do(world: SimCluster, slots: list[SimSlot], fault: FaultSpec) -> None:
        for slot in slots:
            for other in world.living():
                if other is not slot:
                    act(world, slot, other, fault)

    return do


def _kill_all(world: SimCluster, _slots: list[SimSlot], _fault: FaultSpec) -> None:
    world.kill_together(world.living())
    world.restart_coordinator(DOWN_MS)


def _slow_down(world: SimCluster, _slots: list[SimSlot], fault: FaultSpec) -> None:
    """Slows down all connections: the simulated network has one delay."""
    usual_ns = world.network.delay_ns_max

    def speed_up() -> None:
        world.network.delay_ns_max = usual_ns

    world.network.delay_ns_max = (fault.latency_ms + fault.jitter_ms) * MILLISECOND_NS
    world.clock.after(fault.lasts_ms * MILLISECOND_NS, speed_up)


INJECTIONS: Final[dict[FaultKind, Inject]] = {
    FaultKind.KILL_WORKER: lambda world, slots, _: world.kill_together(slots),
    FaultKind.KILL_DOMAIN: _each(lambda world, slot, _: world.kill_domain(slot.domain)),
    FaultKind.KILL_DRIVER: _kill_all,
    FaultKind.PAUSE: _each(lambda world, slot, fault: world.pause(slot, fault.lasts_ms)),
    FaultKind.CUT: _towards_all(lambda world, slot, other, fault: world.cut(slot, other, fault.lasts_ms)),
    FaultKind.HALF_OPEN: _towards_all(lambda world, slot, other, fault: world.half_open(slot, other, fault.lasts_ms)),
    FaultKind.RESET: _towards_all(lambda world, slot, other, _: world.cut(slot, other, 0)),
    FaultKind.DELAY: _slow_down,
}


def run_simulated(scenario: Scenario, seed: int) -> RunRecord:
    """Runs one world. Raises JobError before anything runs, if a fault does not exist here."""
    reason = refusal(scenario)
    if reason:
        raise JobError(reason)
    return _Simulated(scenario, seed).run()


def refusal(scenario: Scenario) -> str:
    """Returns why a scenario cannot run here; empty where it can."""
    unknown = sorted({fault.kind for fault in scenario.faults} - INJECTIONS.keys())
    if unknown:
        return (
            f"{scenario.name}: {unknown[0]} does not exist in the simulated world (there are: {', '.join(INJECTIONS)})."
            " Run it with --processes."
        )
    if scenario.job != TWIN_OF:
        return f"{scenario.name}: only the shipped job {TWIN_OF} has a simulated twin."
    try:
        _Simulated(scenario, 0)
    except JobError as error:
        return str(error)
    return ""


class _Simulated:
    """Run of one scenario in one world."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.rng = Random(f"victims of {seed}")
        self.record = RunRecord(scenario, seed, "simulated")
        self.total, self.per_second = pace_of(scenario.job_options)
        self.targeted_faults = [self._targeted_fault(fault) for fault in scenario.faults]
        options_of(scenario)
        self.record.notes += filter(None, [ignored_options(scenario)])

    def _open(self) -> None:
        options, settings = options_of(self.scenario)
        self.world = World(self.record.seed, "described", options, settings, self._job, self.targeted_faults)
        plan = self.world.plan
        edges = [(c.sender, c.receiver) for task in plan.tasks for c in plan.outputs[task] if c.receiver is not None]
        named = tuple((plan.task_name(sender), plan.task_name(receiver)) for sender, receiver in edges)
        self.shape = Shape(tuple(plan.task_name(task) for task in plan.tasks), named)

    def _job(self, rng: Random) -> FuzzJob:
        depth = options_of(self.scenario)[0].sharing_depth
        job = FuzzJob("described", rng, max(10, self.total // SHARE), depth, _build)
        job.plan = with_hot_standbys(self.scenario, job.plan)
        return job

    def _targeted_fault(self, fault: FaultSpec) -> TargetedFault:
        """Translates the trigger of a fault: a point by its name, records as answered calls."""
        at = fault.at
        times = fault.count if fault.pattern is Pattern.IN_A_ROW else 1

        def injection(_world: SimCluster, reached: PointReached) -> None:
            self._inject(fault, reached)

        if at.point:
            point = POINTS_HERE.get(at.point, at.point)
            if point not in POINTS and not is_of_message(point):
                raise JobError(f"{self.scenario.name}: there is no point {at.point!r}; there are: {', '.join(POINTS)}.")
            if at.point in (FaultPoint.CALL, FaultPoint.CALLED) and at.task + fault.victim not in ("", "ask"):
                raise JobError(f"{self.scenario.name}: in the simulated twin only the step ask calls the service.")
            nth = (
                max(1, at.nth // SHARE)
                if at.point in (FaultPoint.CALL, FaultPoint.CALLED, FaultPoint.EMISSION)
                else at.nth
            )
            step = "" if at.point in STATUS_POINTS else at.task or fault.victim
            watched = tasks_of(Shape(TASKS, ()), TWINS.get(step, step))
            nth += len(watched) if point == FaultPoint.START else 0  # each task has begun once

            def there(world: SimCluster, reached: PointReached) -> bool:
                return reached.task is None or reached.name_in(world) in watched

            return TargetedFault(point, injection, there, nth=nth, times=times)
        records = at.records if at.records is not None else int((at.seconds or 0.0) * self.per_second)
        wanted = min(records, self.total - SHARE) // SHARE

        def where(world: SimCluster, _reached: PointReached) -> bool:
            return len(world.job.service.answers) >= wanted

        return TargetedFault("called", injection, where, times=times)

    def _inject(self, fault: FaultSpec, reached: PointReached) -> None:
        world = self.world
        if world.ending is not None:
            return
        is_own = is_fault_point(fault.at.point) and not fault.at.task and not fault.at.point.endswith(" delivered")
        first = reached.name_in(world) if is_own else ""
        asked = replace(fault, victim=TWINS.get(fault.victim, fault.victim))
        tasks = [] if fault.kind in TASKLESS else choose(asked, self.shape, self.rng, first)
        slots = {slot.id: slot for name in tasks if (slot := world.slot_of(world.task(name))) is not None}
        if fault.pattern in BACKUP_PATTERNS and tasks:
            placement = world.view.placements[world.task(tasks[0])]
            helpers = [world.slots[slot_id] for slot_id in (*placement.standbys, *placement.keepers)]
            own = slots if fault.pattern is Pattern.WITH_STANDBY else {}
            slots = own | {slot.id: slot for slot in helpers if not slot.is_dead}
        domains = {slot.domain for slot in slots.values()} if fault.kind is FaultKind.KILL_DOMAIN else set()
        is_of_all = fault.kind is FaultKind.KILL_DRIVER
        affected = [s for s in world.living() if is_of_all or s.id in slots or s.domain in domains]
        incarnations = self.observer.expect_restarts(affected)
        self.record.injections.append(Injection(fault.kind, tasks, world.clock.now_ns, incarnations=incarnations))
        INJECTIONS[fault.kind](world, list(slots.values()), fault)

    def run(self) -> RunRecord:
        """Runs the world to its end and judges it."""
        self._open()
        self.observer = Observer(self.world, self.record)
        record, wanted = self.record, self.scenario.expected.outcome
        try:
            outcome = self.world.run()
        except WorldFailed as failure:
            record.failure = str(failure)
        else:
            record.failure = ""
            record.checkpoints = max(self.world.chain, default=0)
            record.notes.append(f"{outcome.delivered} messages, {outcome.views} views, digest {outcome.digest}")
        record.ended_ns = self.world.clock.now_ns
        self.observer.sum_up()
        injections = sum(fault.count if fault.pattern is Pattern.IN_A_ROW else 1 for fault in self.scenario.faults)
        record.not_injected = max(0, injections - len(record.injections))
        judge(record)
        if wanted is not ScenarioOutcome.FAILS and not record.failure:
            checked = "lost, duplicated, contradicted, out of order, replicas, calls, alarms"
            record.checks.append(Check("the world's oracle", "no complaint", f"no complaint ({checked})", True))
        return record


TASKS: Final = ("read/0", "ask/0", "ask/1", "window/0", "window/1", "sink/0")


def _build(job: FuzzJob) -> None:
    read = job.add("read", Work(reads_clock=True, ports=(0,)))
    ask = job.add("ask", ASKING, 2)
    window = job.add("window", WINDOWS, 2)
    sink = job.add_sink(SINK)
    job.connect(read, ask)
    job.connect(ask, window, Partitioning.HASH, 0)
    job.connect(ask, sink, Partitioning.HASH, 1)
    job.connect(window, sink)
    job.copies = 2

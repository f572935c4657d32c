"""Crash tests: run a user's job in simulated worlds with faults, and report the smallest world that fails."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from clonos.api.graph import JobGraph
from clonos.core.model.errors import JobError
from clonos.core.model.ids import TaskId
from clonos.core.ports.operator_chain import StepFailed
from clonos.job import Job
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.sim.random_faults import FaultRng
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.event_log import excerpt_of, with_short_slots
from clonos_chaos.swarm.shrinking import Failure, Shrunk, chosen, failure_of, shrink
from clonos_chaos.swarm.world import World
from clonos_chaos.user.comparing import Compare, OutputComparison
from clonos_chaos.user.user_graph import Inputs, JobLike, Ready, given_inputs, ready
from clonos_chaos.user.user_world import Check, Judging, Outputs, UserWorld
from clonos_services.stand_ins import HttpAnswer, Services, StandIns

SEEDS_USUAL: Final = range(200)
SHRINK_SECONDS_MAX: Final = 60.0


class CrashTestFailed(JobError, AssertionError):
    """A world of a crash test has failed. ``seed``, ``faults`` and ``records`` identify the smallest one."""

    job: str
    seed: int
    complaint: str
    faults: tuple[int, ...]
    records: int | None
    report: str

    def __str__(self) -> str:
        return self.report


@dataclass
class CrashReport:
    """Result of a crash test. ``compared``: sinks whose rows were compared, and equal, in all worlds."""

    job: str
    worlds: int = 0
    rollbacks: int = 0
    checkpoints: int = 0
    incarnations: int = 0
    calls: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    compared: tuple[str, ...] = ()

    def add(self, world: UserWorld) -> None:
        """Adds a world that has ended well."""
        self.worlds += 1
        self.rollbacks += world.outcome.rollbacks
        self.checkpoints += world.outcome.checkpoints
        self.incarnations += sum(len(lives) for lives in world.oracle.incarnations.values())
        self.calls += len(world.watch.calls)
        self.injected.update(injected.kind for injected in world.faults.injected.values())

    def __str__(self) -> str:
        injected = ", ".join(f"{kind} {count}" for kind, count in sorted(self.injected.items())) or "nothing"
        return (
            f"{self.job}: {self.worlds} worlds, {self.incarnations} incarnations, {self.rollbacks} rollbacks,"
            f" {self.checkpoints} checkpoints, {self.calls} calls; injected: {injected};"
            f" compared: {', '.join(self.compared) or 'nothing, because runs differ'}"
        )


def crash_test(
    job: JobLike,
    inputs: Inputs = None,
    seeds: Iterable[int] = SEEDS_USUAL,
    check: Check | None = None,
    *,
    http: HttpAnswer | None = None,
    services: Services | None = None,
    compare: Compare = True,
    only_faults: Sequence[int] | None = None,
    records: int | None = None,
) -> CrashReport:
    """Runs the job in one simulated world per seed; ``clonos.testing`` documents the arguments.

    Raises JobError: an argument is invalid. Raises CrashTestFailed: a world has failed.
    """
    __tracebackhide__ = True  # pytest then shows where the test called, and the message
    worlds = _worlds_of(seeds, records)
    if not callable(job) and not isinstance(job, Job | JobGraph):
        raise JobError(f"crash_test takes a Job, or a function that makes one, not {job!r:.100}.")
    return _CrashTest(job, inputs, check, StandIns(http, services or {}), compare).run(
        worlds, None if only_faults is None else tuple(only_faults), records
    )


def _worlds_of(seeds: Iterable[int], records: int | None) -> list[int]:
    """Returns the seeds. Raises JobError: no world would run."""
    if not isinstance(seeds, Iterable):
        raise JobError(
            f"seeds={seeds!r}, but a sequence is expected, such as range(200), or [{seeds!r}] for this seed."
        )
    found = list(seeds)
    if not found:
        raise JobError("seeds= is empty: the test would run no world. Pass seeds such as range(200).")
    if records is not None and records < 1:
        raise JobError(f"records={records}, but at least 1 is expected.")
    return found


class _CrashTest:
    def __init__(
        self, job: JobLike, inputs: Inputs, check: Check | None, stand_ins: StandIns, compare: Compare
    ) -> None:
        self._job = job
        self._inputs = given_inputs(job, inputs)
        self._judging = Judging(stand_ins, check, self._compared)
        self._compare = compare
        self._expected_of: dict[int, Outputs | None] = {}
        self._is_made_anew = callable(job)
        self._known: dict[int | None, Ready] = {}
        self.report = CrashReport(self._ready(None).image.plan.job_name)

    def run(self, seeds: list[int], faults: tuple[int, ...] | None, records: int | None) -> CrashReport:
        """Runs all worlds up to the first failure. Raises CrashTestFailed."""
        __tracebackhide__ = True
        self._comparison = OutputComparison(self.report.job, self._compare, self._run_without_faults)
        for seed in seeds:
            make = partial(self._world, seed)
            if faults is not None or records is not None:
                world = chosen(make, faults, records)
                failure = failure_of(world)
                shrunk = None if failure is None else Shrunk(failure, faults or (), records, 0)
            else:
                world = make(None, None)
                failure = failure_of(world)
                if failure is not None and self._differs(world) and not self._comparison.confirm():
                    world = make(None, None)
                    failure = failure_of(world)
                whole = self._ready(None).records
                shrunk = (
                    None
                    if failure is None
                    else shrink(partial(self._smaller, seed), failure, whole, SHRINK_SECONDS_MAX)
                )
            if shrunk is not None:
                raise self._failed(shrunk, seeds) from _cause_of(shrunk.failure)
            self.report.add(_users(world))
        self.report.compared = self._comparison.sinks
        return self.report

    # ------------------------------------------------------------------ worlds

    def _ready(self, records: int | None) -> Ready:
        if self._is_made_anew:
            return ready(self._job, self._inputs, records)
        if records not in self._known:
            self._known[records] = ready(self._job, self._inputs, records)
        return self._known[records]

    def _world(self, seed: int, only_faults: Mapping[int, FaultRng] | None, records: int | None) -> UserWorld:
        judging = self._judging
        if records is not None:
            expected = self._expected(records)
            compare = Judging.compare if expected is None else partial(self._comparison.complaints, expected=expected)
            judging = replace(judging, compare=compare)
        return UserWorld(seed, self._ready(records), judging, only_faults)

    def _run_without_faults(self, number: int) -> Outputs:
        __tracebackhide__ = True
        world = self._fault_free_world(number, None)
        failure = failure_of(world)
        if failure is not None:
            raise self._failed(Shrunk(failure, (), None, 0), []) from _cause_of(failure)
        return world.outputs()

    def _fault_free_world(self, number: int, records: int | None) -> UserWorld:
        judging = replace(self._judging, compare=Judging.compare)
        return UserWorld(-1 - number, self._ready(records), judging, is_fault_free=True)

    def _smaller(self, seed: int, only_faults: Mapping[int, FaultRng] | None, records: int | None) -> World | None:
        """Makes a world to shrink to; None where the check fails with these records without any fault."""
        if records is not None and self._expected(records) is None:
            return None
        return self._world(seed, only_faults, records)

    def _expected(self, records: int) -> Outputs | None:
        """Returns the output of a fault-free world with ``records`` records; None if that fails."""
        if records not in self._expected_of:
            world = self._fault_free_world(0, records)
            self._expected_of[records] = None if failure_of(world) is not None else world.outputs()
        return self._expected_of[records]

    def _compared(self, outputs: Outputs) -> list[str]:
        return self._comparison.complaints(outputs)

    def _differs(self, world: World) -> bool:
        """Returns whether a world has failed because its output differs."""
        return world.ending is not None and bool(self._compared(_users(world).outputs()))

    # ------------------------------------------------------------------ reports

    def _failed(self, shrunk: Shrunk, seeds: list[int]) -> CrashTestFailed:
        failure, seed = shrunk.failure, shrunk.failure.world.seed
        name = self.report.job
        if seed < 0:
            head = [f"{name} fails in a world without faults"]
        else:
            head = [f"{name} fails in world {seed} ({self.report.worlds} of {len(seeds)} worlds before it passed)"]
        complaint = _complaint_of(failure)
        lines = [*head, f"  {complaint}"]
        if seed >= 0:
            size = _counted(len(shrunk.faults), "fault")
            size += "" if shrunk.records is None else f" and {_counted(shrunk.records, 'record')}"
            lines.append(f"the smallest world with this failure has {size} (found in {shrunk.tries} tries):")
            lines += [
                f"  fault {number}: {fault.kind} at {fault.at_ns // MILLISECOND_NS} ms{_whom(failure, fault.task)}"
                for number, fault in shrunk.injected
            ]
            lines += ["to reproduce it:", *(f"  {line}" for line in _again(seed, shrunk))]
        lines += ["its last events (virtual milliseconds):", excerpt_of(failure.world, failure.complaint)]
        report = with_short_slots(failure.world, "\n".join(lines))
        return CrashTestFailed(name, seed, complaint, shrunk.faults, shrunk.records, report)


def _users(world: World) -> UserWorld:
    assert isinstance(world, UserWorld)
    return world


def _complaint_of(failure: Failure) -> str:
    """Returns what is wrong; for an error of user code, the step and the record too."""
    crashes = failure.world.crashes
    if not crashes:
        return failure.complaint if isinstance(failure.error, WorldFailed) else _named_error(failure.error)
    if isinstance(crashes[0], StepFailed):
        at = crashes[0].at
        where = f" at the record {at.record}" if at.record else ""
        return f"the step {at.step} raised{where}: {_named_error(crashes[0].__cause__ or crashes[0])}"
    return _named_error(crashes[0])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _named_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _cause_of(failure: Failure) -> BaseException | None:
    """Returns the underlying error, of user code or of a state machine, if the report does not cover it."""
    world = _users(failure.world)
    if world.check_error is not None:
        return world.check_error
    cause = failure.error.__cause__
    while isinstance(cause, StepFailed) and cause.__cause__ is not None:
        cause = cause.__cause__
    return cause if isinstance(failure.error, WorldFailed) else failure.error


def _whom(failure: Failure, task: TaskId | None) -> str:
    return "" if task is None else f" ({failure.world.plan.task_name(task)})"


def _again(seed: int, shrunk: Shrunk) -> list[str]:
    """Returns the ways to reproduce the failure: in pytest and in code."""
    faults = ",".join(map(str, shrunk.faults))
    lines = []
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test:
        records = "" if shrunk.records is None else f" --clonos-records {shrunk.records}"
        lines.append(f'pytest "{test}" --clonos-seed {seed} --clonos-faults {faults or "none"}{records}')
    records = "" if shrunk.records is None else f", records={shrunk.records}"
    lines.append(f"crash_test(..., seeds=[{seed}], only_faults=[{faults}]{records})")
    return lines

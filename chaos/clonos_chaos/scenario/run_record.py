"""Record of one run of a scenario, on real processes or in the simulated world, and its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import permutations
from math import inf
from statistics import median
from typing import Any

from clonos.core.model.progress import SETTLED_PHASES, TaskCounter
from clonos.status import RecoveryState, Status, TaskState
from clonos_chaos.scenario.scenario import LEAVES_ZOMBIES, Scenario, ScenarioLimits, ScenarioOutcome
from clonos_chaos.scenario.scenario_oracle import KEYS_MAY_CHANGE, Findings

SAMPLES_MAX = 4_000
"""Samples over the whole time that a run may take."""

BIN_NS = 100_000_000
"""Width of the bins of the curves in ``--json``."""


RETAINED_COUNTERS = (TaskCounter.LOG_MEMORY_BYTES, TaskCounter.INFLIGHT_MEMORY_BYTES, TaskCounter.INFLIGHT_DISK_BYTES)


def task_retained_bytes(counters: Mapping[str, int]) -> int:
    """Returns the bytes in causal logs and in-flight logs of a task, in memory and on disk."""
    return sum(counters.get(name, 0) for name in RETAINED_COUNTERS)


@dataclass(slots=True)
class Injection:
    """Injected fault. ``until_ns`` 0: it has no duration, or has not ended. ``incarnations``: of the tasks hit."""

    kind: str
    tasks: list[str]
    at_ns: int
    until_ns: int = 0
    detail: str = ""
    incarnations: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """State of the job at one instant. ``retained_bytes``: in causal logs and in-flight logs, in memory and on disk."""

    at_ns: int
    live: int
    checkpoint: int
    retained_bytes: int


@dataclass(frozen=True, slots=True)
class Check:
    """Check of a run: expected and actual value, and whether it passed."""

    name: str
    wanted: str
    found: str
    is_good: bool


@dataclass(slots=True)
class RunRecord:
    """Record of a run. Instants are in ns of the wall clock, or of virtual time in a simulated run."""

    scenario: Scenario
    seed: int
    world: str
    began_ns: int = 0
    ended_ns: int = 0
    failure: str = "the job did not end"
    first_failure: str = ""  # the reason why a later driver resumed the job
    injections: list[Injection] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    recoveries: list[RecoveryState] = field(default_factory=list)
    moves: set[tuple[str, int]] = field(default_factory=set)  # planned ones that have ended: task, new incarnation
    generations: set[int] = field(default_factory=set)
    checkpoints: int = 0
    alarms: list[dict[str, Any]] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    remainder: list[str] | None = None  # what the last checkpoint should have removed; None: not checked
    not_injected: int = 0  # faults whose trigger never fired
    findings: Findings | None = None
    notes: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Returns whether all checks passed."""
        return bool(self.checks) and all(check.is_good for check in self.checks)

    @property
    def was_rolled_back(self) -> bool:
        """Returns whether the job had to roll back, or was permitted to and did."""
        wanted = self.scenario.expected.outcome
        return wanted in (ScenarioOutcome.ROLLBACK, ScenarioOutcome.RESUMED) or (
            wanted is ScenarioOutcome.EITHER and len(self.generations) > 1
        )

    def add_sample(self, status: Status, at_ns: int, every_ns: int = 0) -> None:
        """Records a sample; a long run records fewer, unless ``every_ns`` gives the interval."""
        self.checkpoints = max(self.checkpoints, status.checkpoint)
        retained = sum(task_retained_bytes(task.counters) for task in status.tasks)
        interval_ns = every_ns or self.scenario.limits.seconds * 1e9 / SAMPLES_MAX
        if self.samples and at_ns - self.samples[-1].at_ns < interval_ns:
            return
        live = sum(task.phase in SETTLED_PHASES for task in status.tasks)
        self.samples.append(Sample(at_ns, live, status.checkpoint, retained))

    @property
    def may_have_changed_keys(self) -> bool:
        """Returns whether a source or a processing-time window recovered together with a step downstream.

        The position of its last barrier may then be lost: both may resume after another checkpoint, where their plain
        calls have other keys.
        """
        spans = [
            (one.task.split("/")[0], one.reached["detected"], one.reached.get("caught_up", inf))
            for one in self.recoveries
            if "detected" in one.reached
        ]
        return any(
            other in KEYS_MAY_CHANGE.get(step, ()) and began <= until and since <= ended
            for (step, began, ended), (other, since, until) in permutations(spans, 2)
        )

    def recovery_ms(self) -> dict[str, float]:
        """Returns the time from an injection until the task had caught up, by task; -1: it never did.

        A successor that dies as well hands over to the next one. Recoveries that a rollback ended do not count.
        """
        found: dict[str, float] = {}
        followers = {(one.task, one.failed_incarnation): one for one in self.recoveries}
        for injection, recovery in self.recoveries_by_injection():
            last = recovery
            while not last.is_over and (last.task, last.incarnation) in followers:
                last = followers[last.task, last.incarnation]
            caught_ns = last.reached.get("caught_up")
            if caught_ns is not None or len(self.generations) < 2:
                # The driver's clock is slewed while a scenario sets it, so it may show less than has passed.
                time_ms = -1.0 if caught_ns is None else max(0.0, round((caught_ns - injection.at_ns) / 1e6, 1))
                found[f"{recovery.task} {recovery.failed_incarnation:x}"] = time_ms
        return found

    def recoveries_by_injection(self) -> Iterator[tuple[Injection, RecoveryState]]:
        """Yields each recovery with its cause: the last fault before it that hit the incarnation of the task."""
        for recovery in self.recoveries:
            noticed_ns = recovery.reached.get("detected", self.ended_ns)
            candidates = [
                s for s in self.injections if s.incarnations.get(recovery.task) == recovery.failed_incarnation
            ]
            causes = [injection for injection in candidates if injection.at_ns <= noticed_ns] or candidates[:1]
            if causes:
                yield causes[-1], recovery

    def curves(self) -> list[list[float]]:
        """Returns, for each tenth of a second with output: begin in ms, records, median and worst latency in ms."""
        bins: dict[int, list[float]] = {}
        for sink_ns, read_ns in self.findings.rows if self.findings is not None else ():
            bins.setdefault((sink_ns - self.began_ns) // BIN_NS, []).append((sink_ns - read_ns) / 1e6)
        return [
            [place * BIN_NS // 1_000_000, len(found), round(median(found), 1), round(max(found), 1)]
            for place, found in sorted(bins.items())
        ]

    def data(self) -> dict[str, Any]:
        """Returns the record as data for ``--json``."""
        findings = asdict(self.findings) if self.findings is not None else None
        if findings is not None:
            findings.pop("rows")
        return {
            "scenario": self.scenario.name,
            "job": self.scenario.job,
            "world": self.world,
            "seed": self.seed,
            "verdict": "good" if self.is_good else "bad",
            "seconds": round((self.ended_ns - self.began_ns) / 1e9, 3),
            "failure": self.failure,
            "first_failure": self.first_failure,
            "checks": [asdict(check) for check in self.checks],
            "oracle": findings,
            "injections": [{**asdict(s), "at_ms": round((s.at_ns - self.began_ns) / 1e6, 1)} for s in self.injections],
            "recovery_ms": self.recovery_ms(),
            "recoveries": [
                {
                    "task": recovery.task,
                    "cause": recovery.cause,
                    "injected_at_ms": round((injection.at_ns - self.began_ns) / 1e6, 1),
                    "reached_ms": {name: round((at - self.began_ns) / 1e6, 1) for name, at in recovery.reached.items()},
                }
                for injection, recovery in self.recoveries_by_injection()
            ],
            "curves": self.curves(),
            "checkpoints": self.checkpoints,
            "moves": len(self.moves),
            "rollbacks": max(0, len(self.generations) - 1),
            "alarms": self.alarms,
            "notes": self.notes,
            "samples": [
                [round((s.at_ns - self.began_ns) / 1e6), s.live, s.checkpoint, s.retained_bytes] for s in self.samples
            ],
        }


def has_moved(status: Status, task: TaskState) -> bool:
    """Returns whether the coordinator began the present incarnation of a task to move it, and not because one died."""
    return any(move.task == task.name and move.incarnation == task.incarnation for move in status.moves)


def judge(record: RunRecord) -> None:
    """Fills ``checks``: compares the expectations of the scenario with the results."""
    scenario, checks = record.scenario, record.checks
    expected, limits = scenario.expected, scenario.limits

    def demand(name: str, wanted: object, found: object, is_good: bool) -> None:
        checks.append(Check(name, str(wanted), str(found), is_good))

    shall_fail = expected.outcome is ScenarioOutcome.FAILS
    demand(
        "the job", "fails" if shall_fail else "ends", record.failure or "has ended", bool(record.failure) == shall_fail
    )
    if expected.outcome is ScenarioOutcome.RESUMED:
        demand("the first run", "fails", record.first_failure or "has ended", bool(record.first_failure))
    planned = len(scenario.faults)
    demand("faults injected", planned, planned - record.not_injected, not record.not_injected)
    if shall_fail:
        return
    if record.findings is not None:
        for name in ("lost", "duplicated", "contradicted"):
            wanted, found = getattr(expected, name), getattr(record.findings, name)
            demand(name, wanted, found, wanted == found)
        demand("disordered", 0, record.findings.disordered, not record.findings.disordered)
    rollbacks = max(0, len(record.generations) - 1)
    if record.was_rolled_back:
        if expected.outcome is not ScenarioOutcome.EITHER:
            demand("rollbacks", "at least 1", rollbacks, rollbacks > 0)
    else:
        demand("rollbacks", f"at most {limits.rollbacks}", rollbacks, rollbacks <= limits.rollbacks)
        demand(
            "healthy tasks disturbed",
            limits.disturbed,
            "; ".join(record.disturbed) or 0,
            len(record.disturbed) <= limits.disturbed,
        )
    if limits.moves:
        moves = len(record.moves)
        demand("planned moves", f"at least {limits.moves}", moves, moves >= limits.moves)
    _judge_calls(record, limits)
    times = record.recovery_ms()
    never = [task for task, time in times.items() if time < 0]
    slowest = f"{max(times.values())} ms" if times else "no task recovered alone"
    is_in_time = all(0 <= time <= limits.recovery_ms for time in times.values())
    found = f"never caught up: {', '.join(never)}" if never else slowest
    demand("slowest recovery", f"at most {limits.recovery_ms} ms", found, is_in_time)
    if record.findings is not None and scenario.job == "ordered":
        record.notes.append(
            f"{len(record.injections)} deaths: {record.findings.calls_repeated} calls were repeated;"
            f" {record.findings.calls_in_doubt} calls in doubt were reported to user code"
        )
    if record.remainder is not None:
        remains = "; ".join(record.remainder) or "as at the start"
        demand("logs and spill", "as at the start", remains, not record.remainder)
    demand("left behind", "nothing", ", ".join(record.left_behind) or "nothing", not record.left_behind)


def _judge_calls(record: RunRecord, limits: ScenarioLimits) -> None:
    if record.findings is None or not record.findings.calls:
        return
    repeated, most = record.findings.calls_repeated, limits.calls_repeated
    if most is not None:
        record.checks.append(Check("calls repeated", f"at most {most}", str(repeated), repeated <= most))
    if len(record.generations) < 2:
        changed, needless = record.findings.keys_changed, record.findings.calls_needless
        if not record.may_have_changed_keys:
            record.checks.append(Check("idempotency keys changed", "0", str(changed), not changed))
        if not any(fault.kind in LEAVES_ZOMBIES for fault in record.scenario.faults):
            record.checks.append(Check("logged calls made again", "0", str(needless), not needless))

"""Runs a scenario on real processes: starts the job, waits for the moments, strikes, and lets the oracle judge."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import psutil

from clonos.core.errors import JobError
from clonos.io.local_folder import default_root, sweep
from clonos.io.wall_clock import wall_ns
from clonos.status import RecoveryState, Status
from clonos_chaos.relay import Relay
from clonos_chaos.runner_driven import Driven, child_environment, status_of
from clonos_chaos.runner_driver import Spec
from clonos_chaos.runner_faults import Lasting, Tools, pid_of_port, strike
from clonos_chaos.runner_record import Check, Record, Strike, judge
from clonos_chaos.runner_victims import Shape, choose
from clonos_chaos.scenario import POINTS, VICTIMLESS, Fault, Kind, Outcome, Pattern, Scenario
from clonos_chaos.scenario_job import RECORDS, SHIPPED, SOURCES, find_object
from clonos_chaos.scenario_oracle import Findings, judge_folder
from clonos_chaos.scenario_service import ServiceProcess
from clonos_chaos.toxics import Toxiproxy, find_server

LOOK_EVERY_S: Final = 0.02
PATIENCE_S: Final = 15.0
"""A standby or keeper that is still not there after so long is not waited for."""

GONE_WITHIN_S: Final = 8.0
DEFAULT_OPTIONS: Final[Mapping[str, Any]] = {
    "checkpoint_every": "300ms",
    "standbys": 1,
    "spare_slots": 2,
    "lease": "1500ms",
    "step_records_max": 16,
    "step_records_first": 4,
}


@dataclass(slots=True)
class Planned:
    """A fault that is still to come, or is being repeated. ``asked_s``: when its moment was first there."""

    fault: Fault
    left: int
    victim: str = ""
    asked_s: float = 0.0
    is_armed: bool = False
    caller: int = 0  # the process that asked the service, at the points "call" and "called"


@dataclass(slots=True)
class Ongoing:
    """A fault that lasts."""

    fault: Fault
    strike: Strike
    lasting: Lasting
    ends_s: float


@dataclass
class ProcessRun:
    """One run. ``run`` is the whole of it."""

    scenario: Scenario
    seed: int
    folder: Path
    slots: str = "process"
    record: Record = field(init=False)

    def __post_init__(self) -> None:
        self.record = Record(self.scenario, self.seed, "spark" if self.slots == "spark" else "processes")
        self._luck = Random(self.seed)
        self._planned = [
            Planned(fault, fault.count if fault.pattern is Pattern.IN_A_ROW else 1) for fault in self.scenario.faults
        ]
        self._ongoing: list[Ongoing] = []
        self._shape: Shape | None = None
        self._status: Status | None = None
        self._standbys: dict[str, list[int]] = {}
        self._kept: set[str] = set()
        self._slots_seen: set[int] = set()
        self._live_since_s = 0.0
        self._pids: set[int] = set()
        self._known: dict[str, tuple[int, int]] = {}
        self._killed: dict[str, int] = {}  # incarnations whose death may not be known yet
        self._struck: set[str] = set()  # tasks that may get a new life, in this generation
        self._recoveries: dict[tuple[str, int], RecoveryState] = {}
        self._is_over = False
        self._commits_seen = 0

    # ------------------------------------------------------------------ the whole

    def run(self) -> Record:
        """Runs and judges."""
        for planned in self._planned:
            if planned.fault.at.point and planned.fault.at.point not in POINTS:
                raise JobError(
                    f"the point {planned.fault.at.point!r} can be reached in the simulated world only (--simulated);"
                    f" from outside a real process one sees: {', '.join(POINTS)}."
                )
        with ExitStack() as stack:
            self._tools = self._open_tools()
            stack.callback(self._tools.close)
            self._spec = self._make_spec()
            self._driven = Driven(self._spec, self.folder)
            stack.callback(lambda: self._driven.close())
            self.record.began_ns = wall_ns()
            self._watch()
            self._end_lasting(lambda _: True)
        self.record.ended_ns = wall_ns()
        self.record.recoveries = list(self._recoveries.values())
        self.record.unstruck = sum(planned.left > 0 for planned in self._planned)
        self._see_processes_end()
        self._ask_oracle()
        judge(self.record)
        return self.record

    def _open_tools(self) -> Tools:
        toxiproxy = Toxiproxy(find_server(), self.folder / "toxiproxy.log") if self.scenario.needs_toxiproxy else None
        relay = Relay(Random(self.seed)) if self.scenario.needs_relay else None
        return Tools(ServiceProcess(self.folder / "calls.jsonl", child_environment()), toxiproxy, relay)

    def _make_spec(self) -> Spec:
        tools = self._tools
        options = {**DEFAULT_OPTIONS, "store": str(self.folder / "store"), "slots": self.slots}
        if self.slots == "process":
            options["domains"] = 0
        return Spec(
            job=self.scenario.job,
            folder=str(self.folder),
            url=tools.service.url,
            options=options | dict(self.scenario.options),
            job_options=dict(self.scenario.job_options),
            toxiproxy_port=tools.toxiproxy.port if tools.toxiproxy is not None else 0,
            relay_port=tools.relay.port if tools.relay is not None else 0,
        )

    def _watch(self) -> None:
        deadline_s = time.monotonic() + self.scenario.limits.seconds
        while not self._is_over:
            select.select([self._driven], [], [], LOOK_EVERY_S)
            for line in self._driven.lines():
                self._take(line)
            if self._driven.is_at_end and not self._is_over:
                self.record.failure = "the driver has ended without a word; driver.log has what it wrote"
                return
            now_s = time.monotonic()
            if now_s > deadline_s:
                self.record.failure = f"it has not ended within {self.scenario.limits.seconds:g} s"
                return
            self._end_lasting(lambda ongoing, now_s=now_s: now_s >= ongoing.ends_s)  # type: ignore[misc]
            for ongoing in self._ongoing:
                ongoing.lasting.renew()
            self._look_for_callers()
            for planned in list(self._planned):
                if planned.left and self._is_due(planned, now_s):
                    self._strike(planned)

    # ------------------------------------------------------------------ what the driver says

    def _take(self, line: dict[str, Any]) -> None:
        if "shape" in line:
            shape = line["shape"]
            edges = tuple((sender, receiver) for sender, receiver in shape["edges"])
            self._shape = Shape(tuple(shape["tasks"]), edges, tuple(shape["sources"]))
        elif "end" in line:
            self._is_over = True
            self.record.failure = line["end"]["failure"]
        else:
            self.record.alarms += line["alarms"]
            if line["generation"]:
                self.record.generations.add(line["generation"])
            self._see(status_of(line), line["at_ns"])
            self._standbys = line["standbys"]
            self._kept = set(line["kept"])

    def _see(self, status: Status, at_ns: int) -> None:
        self._status = status
        self.record.add_sample(status, at_ns)
        self._pids.update(slot.pid for slot in status.slots)
        self._slots_seen.update(slot.slot for slot in status.slots)
        if not self._live_since_s and _is_live(status):
            self._live_since_s = time.monotonic()
        for recovery in status.recoveries:
            self._recoveries[recovery.task, recovery.failed_incarnation] = recovery
        for task in status.tasks:
            now = (task.pid, task.incarnation)
            before = self._known.get(task.name)
            if before is not None and now != before and task.name not in self._struck and task.pid:
                self.record.disturbed.append(f"{task.name} {before} -> {now}")
            if task.pid:
                self._known[task.name] = now

    # ------------------------------------------------------------------ moments

    def _is_due(self, planned: Planned, now_s: float) -> bool:
        status, fault = self._status, planned.fault
        if status is None or not self._live_since_s:
            return False
        if not planned.asked_s:
            if not self._is_moment(planned, status, now_s):
                return False
            planned.asked_s = now_s
        if any(self._killed.get(task.name) == task.incarnation for task in status.tasks):
            return False  # the coordinator has not noticed the last death yet
        is_point = fault.at.point in ("recovering", "call", "called")
        if is_point or not fault.calm or fault.kind is Kind.KILL_DRIVER:
            return True
        if _is_whole(status, int(self._spec.options["standbys"]), self._kept) and not self._ongoing:
            return True
        return now_s - planned.asked_s > PATIENCE_S and _is_live(status)

    def _is_moment(self, planned: Planned, status: Status, now_s: float) -> bool:
        at = planned.fault.at
        if at.seconds is not None:
            return now_s - self._live_since_s >= at.seconds
        if at.records is not None:
            return self._records_read(status) >= at.records
        if at.point == "checkpoint":
            return status.checkpoint >= at.nth
        if at.point == "committed":
            return len(list((self.folder / "output" / "_manifests").glob("[0-9]*.json"))) >= at.nth
        if at.point == "recovering":
            begun = [one for one in status.recoveries if "view" in one.reached]
            return len(begun) >= at.nth and not begun[at.nth - 1].is_over
        if not planned.is_armed:
            planned.is_armed = True
            self._tools.service.tell(f"{'hold' if at.point == 'call' else 'tell'} {at.nth}")
        return planned.caller != 0

    def _look_for_callers(self) -> None:
        port = self._tools.service.held_port()
        if port is None or self._status is None:
            return
        for planned in self._planned:
            if planned.is_armed and not planned.caller:
                planned.caller = pid_of_port(self._status, port)
                named = [task.name for task in self._status.tasks if task.pid == planned.caller]
                if named:
                    planned.victim = named[0]
                elif planned.fault.at.point == "call":
                    self._tools.service.tell("release")

    def _records_read(self, status: Status) -> int:
        sources = set(self._shape.sources) if self._shape is not None else set()
        return sum(task.counters.get("records_in", 0) for task in status.tasks if task.name in sources)

    # ------------------------------------------------------------------ striking

    def _strike(self, planned: Planned) -> None:
        fault, status, shape = planned.fault, self._status, self._shape
        assert status is not None, "a fault is due after the first status"
        assert shape is not None, "the shape is told before the first status"
        if fault.kind is Kind.KILL_DRIVER:
            self._kill_driver(planned)
            return
        tasks = [] if fault.kind in VICTIMLESS else choose(fault, shape, self._luck, planned.victim)
        by_name = {task.name: task for task in status.tasks}
        if any(not by_name[name].pid for name in tasks):
            return  # it waits for a slot: the next look
        planned.left -= 1
        planned.asked_s = 0.0 if planned.left else planned.asked_s
        if tasks:
            planned.victim = tasks[0]
        others = [slot for name in tasks[:1] for slot in self._standbys.get(name, ())]
        others = others if fault.pattern is Pattern.WITH_STANDBY else []
        struck = self._befallen(fault, status, tasks, others)
        told = Strike(fault.kind, tasks, wall_ns(), incarnations={name: by_name[name].incarnation for name in struck})
        self._struck.update(struck)
        if fault.kind in (Kind.KILL_WORKER, Kind.KILL_DOMAIN):
            self._killed.update(told.incarnations)
        lasting = strike(fault, status, tasks, others, self._tools)
        if lasting is not None:
            told.detail = f"for {fault.lasts_ms} ms {lasting.detail}".rstrip()
            self._ongoing.append(Ongoing(fault, told, lasting, time.monotonic() + fault.lasts_ms / 1000))
        self.record.strikes.append(told)
        if fault.at.point == "call":
            self._tools.service.tell("release")

    def _befallen(self, fault: Fault, status: Status, tasks: list[str], others: list[int]) -> list[str]:
        """All tasks that may get a new life by it: who shares a process or a domain with those named."""
        slots = {task.slot for task in status.tasks if task.name in tasks} | set(others)
        domains = {slot.domain for slot in status.slots if slot.slot in slots}
        if fault.kind is Kind.KILL_DOMAIN:
            return [task.name for task in status.tasks if task.domain in domains]
        return [task.name for task in status.tasks if task.slot in slots]

    def _end_lasting(self, is_over: Callable[[Ongoing], bool]) -> None:
        for ongoing in [one for one in self._ongoing if is_over(one)]:
            self._ongoing.remove(ongoing)
            ongoing.lasting.end()
            ongoing.strike.until_ns = wall_ns()

    def _kill_driver(self, planned: Planned) -> None:
        """Its slots end with it; another one resumes, in a new generation, with new lives for all."""
        planned.left -= 1
        told = Strike(planned.fault.kind, [], wall_ns(), detail="and resume")
        self.record.strikes.append(told)
        self._driven.kill()
        self._driven.lines()
        self._driven.close()
        _wait_until_gone(self._pids, GONE_WITHIN_S)
        self._known.clear()
        self._struck.clear()
        self._killed.clear()
        self._live_since_s = 0.0
        self._status = None
        self._driven = Driven(msgspec.structs.replace(self._spec, resume=True), self.folder)

    # ------------------------------------------------------------------ the end

    def _see_processes_end(self) -> None:
        for pid in _wait_until_gone(self._pids, GONE_WITHIN_S):
            self.record.left_behind.append(f"process {pid}")
        folders = [default_root() / f"{slot:016x}" for slot in sorted(self._slots_seen)]
        sweep(default_root())  # what a killed process leaves, the next one that starts takes away
        self.record.left_behind += [f"folder {folder}" for folder in folders if folder.exists()]
        if self._tools.relay is not None:
            flipped = self._tools.relay.flipped
            self.record.checks.append(Check("bits flipped", "at least 1", str(flipped), flipped > 0))

    def _ask_oracle(self) -> None:
        scenario, record = self.scenario, self.record
        if record.failure:
            return
        if scenario.job in SHIPPED:
            records = int(scenario.job_options.get("records", RECORDS))
            sinks = ("files",) if scenario.expected.outcome is Outcome.ROLLBACK else ("files", "table")
            record.findings = judge_folder(self.folder, records, SOURCES, sinks)
            if scenario.expected.outcome is Outcome.ROLLBACK:
                record.immediate = judge_folder(self.folder, records, SOURCES, ("table",))
        elif scenario.oracle:
            oracle = find_object(scenario.oracle, f"oracle is {scenario.oracle!r}, but module:function is expected.")
            record.findings = Findings(**oracle(self.folder))
        else:
            record.notes.append('no oracle has looked at the output: name one with oracle = "module:function"')


def _is_live(status: Status) -> bool:
    latest = {one.task: one for one in status.recoveries}
    phases = {task.phase for task in status.tasks}
    return bool(phases) and phases <= {"live", "final"} and all(one.is_over for one in latest.values())


def _is_whole(status: Status, standbys: int, kept: Collection[str]) -> bool:
    """Every task is live and its standbys and keepers could take over; ``kept``: tasks that have keepers."""
    has_standbys = not standbys or all(task.standbys for task in status.tasks)
    return _is_live(status) and has_standbys and all(task.keepers for task in status.tasks if task.name in kept)


def _wait_until_gone(pids: set[int], within_s: float) -> list[int]:
    """Those that still run."""
    processes = []
    for pid in pids:
        try:
            processes.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    return sorted(process.pid for process in alive)

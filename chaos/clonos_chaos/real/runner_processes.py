"""Runs a scenario on real processes: starts the job, waits for triggers, injects faults, and calls the oracle."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import psutil

from clonos.core.model.errors import JobError
from clonos.io.local.local_folder import default_root, sweep
from clonos.io.system.readiness import wait_readable
from clonos.io.system.wall_clock import wall_ns
from clonos.status import RecoveryState, Status
from clonos_chaos.real.clock_shim import ClockShim
from clonos_chaos.real.fault_point_server import FaultPointServer
from clonos_chaos.real.fault_triggers import FaultTriggers, Look, PlannedFault, is_live
from clonos_chaos.real.last_words import ENVIRONMENT, last_words
from clonos_chaos.real.network_namespaces import Hosts
from clonos_chaos.real.relay import Relay
from clonos_chaos.real.run_driver import RunDriver, child_environment, status_of
from clonos_chaos.real.runner_course import Course
from clonos_chaos.real.runner_driver import DriverSpec
from clonos_chaos.real.runner_faults import Lasting, Tools, inject
from clonos_chaos.real.runner_watch import MemoryWatch, process_of, wait_until_gone
from clonos_chaos.real.toxics import Toxiproxy
from clonos_chaos.real.toxiproxy_server import find_server
from clonos_chaos.real.volumes import Volumes
from clonos_chaos.scenario.run_record import Check, Injection, RunRecord, has_moved, judge
from clonos_chaos.scenario.scenario import (
    BACKUP_PATTERNS,
    TASKLESS,
    FaultKind,
    FaultSpec,
    Pattern,
    Scenario,
    ScenarioOutcome,
)
from clonos_chaos.scenario.scenario_gate import Gate
from clonos_chaos.scenario.scenario_job import ORACLES, SHIPPED, find_oracle, pace_of
from clonos_chaos.scenario.scenario_oracle import Findings
from clonos_chaos.scenario.scenario_service import LOOPBACK, ServiceProcess
from clonos_chaos.scenario.victims import Shape, choose, tasks_of

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.02
RESTART_AGAIN_S: Final = 5.0
"""Time within which a restarted task may restart again: the slot that took it over may have been hit as well."""

GONE_WITHIN_S: Final = 8.0
DEFAULT_OPTIONS: Final[Mapping[str, Any]] = {
    "checkpoint_every": "300ms",
    "standbys": 1,
    "spare_slots": 2,
    "lease": "5s",
    "heartbeat": "250ms",  # load from elsewhere on the machine must not look like a fault
    "step_records_max": 16,
    "step_records_first": 4,
}


@dataclass(slots=True)
class Ongoing:
    """Active fault. It is extended beyond its duration while its effects are counted and it has had none."""

    fault: FaultSpec
    injection: Injection
    lasting: Lasting
    ends_s: float

    def is_over(self, now_s: float) -> bool:
        """Returns whether the fault has to end."""
        had_effect = self.lasting.effect_count() or not self.lasting.counts
        return now_s >= self.ends_s + (0.0 if had_effect else self.lasting.patience_s)


@dataclass
class ProcessRun:
    """Run of a scenario on real processes. ``run`` performs it."""

    scenario: Scenario
    seed: int
    folder: Path
    slots: str = "process"
    record: RunRecord = field(init=False)

    def __post_init__(self) -> None:
        self.record = RunRecord(self.scenario, self.seed, "spark" if self.slots == "spark" else "processes")
        self._rng = Random(self.seed)
        self._memory = MemoryWatch()
        self._planned = [PlannedFault.of(fault) for fault in self.scenario.faults]
        self._ongoing: list[Ongoing] = []
        self._shape: Shape | None = None
        self._status: Status | None = None
        self._standbys: dict[str, list[int]] = {}
        self._with_keepers: set[str] = set()
        self._live_since_s = 0.0
        self._slots_usual = 0  # when all tasks were live for the first time
        self._processes: dict[int, psutil.Process | None] = {}  # of each slot; a later one may have its pid
        self._known: dict[str, tuple[int, int]] = {}
        self._killed: dict[str, int] = {}  # incarnations whose death may not be known yet
        self._may_restart_until_s: dict[str, float] = {}  # until when tasks may restart
        self._recoveries: dict[tuple[str, int], RecoveryState] = {}
        self._is_over = self._is_stopping = False
        self._pace = pace_of(self.scenario.job_options) if self.scenario.job in SHIPPED else None
        self._course: Course | None = None
        self._oracle = find_oracle(self.scenario.oracle)

    def _make_course(self, records: int, per_second: float) -> Course:
        limits, local_root = self.scenario.limits, self._tools.local_root
        return Course(Gate(self.folder), local_root, records, per_second, limits.retained_bytes)

    # ------------------------------------------------------------------ the whole

    def run(self) -> RunRecord:
        """Runs the scenario and judges it."""
        with ExitStack() as stack:
            self._tools = self._open_tools(stack)
            self._course = self._make_course(*self._pace) if self._pace is not None else None
            self._triggers = FaultTriggers(self._tools.fault_point_server)
            self._spec = self._make_spec()
            self._driver = self._start_driver(self._spec)
            stack.callback(lambda: self._driver.close())
            self.record.began_ns = wall_ns()
            self.watch()
            self._end_lasting(lambda _: True)
        self.record.ended_ns = wall_ns()
        self.record.recoveries = list(self._recoveries.values())
        self.record.not_injected = sum(planned.left > 0 for planned in self._planned)
        self._see_processes_end()
        self.record.checks += self._memory.checks(self.scenario.limits)
        self._ask_oracle()
        judge(self.record)
        return self.record

    def _open_tools(self, stack: ExitStack) -> Tools:
        scenario = self.scenario
        toxiproxy_server = find_server() if scenario.needs_toxiproxy else None
        hosts = self._divide(stack) if scenario.needs_hosts else None
        address = hosts.address if hosts is not None else LOOPBACK
        volumes = Volumes(self.folder) if scenario.needs_volumes else None
        tools = Tools(
            self.folder,
            volumes.local_root if volumes is not None else default_root(),
            ServiceProcess(self.folder / "calls.jsonl", child_environment(), address),
            hosts=hosts,
            fault_point_server=FaultPointServer() if scenario.needs_fault_points else None,
            clock=ClockShim(self.folder) if scenario.needs_clock_shim else None,
            relay=Relay(Random(self.seed)) if scenario.needs_relay else None,
            volumes=volumes,
        )
        stack.callback(tools.close)
        if toxiproxy_server is not None:
            tools.toxiproxy = Toxiproxy(toxiproxy_server, self.folder / "toxiproxy.log")
        return tools

    def _divide(self, stack: ExitStack) -> Hosts:
        if self.slots != "spark":
            raise JobError(f"{self.scenario.name}: a partition separates hosts of Spark. Run it with --spark.")
        hosts = Hosts(self.folder, child_environment())
        stack.callback(hosts.close)
        return hosts

    def _make_spec(self) -> DriverSpec:
        tools = self._tools
        options = {**DEFAULT_OPTIONS, "store": str(self.folder / "store"), "slots": self.slots}
        if self.slots == "process":
            options["domains"] = 0
        if tools.hosts is not None:
            options["master"] = tools.hosts.master
        if tools.fault_point_server is not None:
            options["fault_points"] = tools.fault_point_server.address
        return DriverSpec(
            job=self.scenario.job,
            folder=str(self.folder),
            url=tools.service.url,
            options=options | dict(self.scenario.options),
            job_options=dict(self.scenario.job_options),
            toxiproxy_port=tools.toxiproxy.port if tools.toxiproxy is not None else 0,
            relay_port=tools.relay.port if tools.relay is not None else 0,
            loot=str(tools.loot) if self.scenario.needs_attackers else "",
        )

    def _start_driver(self, spec: DriverSpec) -> RunDriver:
        clock, hosts, volumes = self._tools.clock, self._tools.hosts, self._tools.volumes
        environment = {**ENVIRONMENT, **(clock.environment if clock is not None else {})}
        environment |= hosts.driver_environment if hosts is not None else {}
        return RunDriver(spec, self.folder, environment | (volumes.environment if volumes is not None else {}))

    def watch(self) -> None:
        """Watches the job until it ends, and injects its faults."""
        deadline_s = time.monotonic() + self.scenario.limits.seconds
        while not self._is_over:
            wait_readable(self._driver.fileno(), LOOK_EVERY_S)
            for line in self._driver.lines():
                self._take(line)
            if self._driver.is_at_end and not self._is_over:
                self.record.failure = f"the driver has ended without a report; its last output: {self._driver.last()}"
                return
            now_s = time.monotonic()
            if now_s > deadline_s:
                phase = f", at {self._course.phase.name.lower()}" if self._course is not None else ""
                self.record.failure = f"the job has not ended within {self.scenario.limits.seconds:g} s{phase}"
                self._log_last_words()
                return
            self._end_lasting(lambda ongoing, now_s=now_s: ongoing.is_over(now_s))  # type: ignore[misc]
            for ongoing in self._ongoing:
                ongoing.lasting.renew()
                if failure := ongoing.lasting.failure():
                    self.record.failure = failure
                    return
            self._look_after(now_s)

    def _log_last_words(self) -> None:
        """Ends the job, and logs where its processes are: its folder may be deleted with its log."""
        processes: dict[str, psutil.Process | None] = {}
        if self._status is not None:
            for slot in self._status.slots:
                tasks = ", ".join(task.name for task in self._status.tasks if task.slot == slot.slot) or "no task"
                processes[f"slot {slot.slot:x} with {tasks} (pid {slot.pid})"] = self._processes.get(slot.slot)
        processes[f"driver (pid {self._driver.pid})"] = process_of(self._driver.pid)
        logger.error("%s: %s\n%s", self.scenario.name, self.record.failure, last_words(self._driver.log, processes))

    def _look_after(self, now_s: float) -> None:
        """Injects the faults that are due, and advances the input."""
        status = self._status
        if status is None:
            return
        if self._live_since_s and self._shape is not None:
            for planned in self._planned:
                if planned.left and self._triggers.is_due(planned, self._look(now_s, status, self._shape)):
                    self._inject(planned, status, self._shape)
        if self._status is None:  # the driver was killed just now
            return
        is_quiescent = is_live(status) and not any(
            self._killed.get(task.name) == task.incarnation for task in status.tasks
        )
        waits = self._is_stopping or any(one.left and one.fault.at.seconds is None for one in self._planned)
        # A source that was killed reads again what it had not sent: its job is not stopped before.
        waits = waits or self._records_read(status) < max(
            (one.fault.at.records or 0 for one in self._planned), default=0
        )
        if is_quiescent and 0 < self.scenario.limits.stop_after < now_s - self._live_since_s and not waits:
            self._is_stopping = True
            self._planned.clear()
            self._driver.stop()
        if self._course is not None:
            self._course.look(
                now_s, status, is_quiescent, not (self._ongoing or any(one.left for one in self._planned))
            )

    def _look(self, now_s: float, status: Status, shape: Shape) -> Look:
        return Look(
            now_s=now_s,
            live_since_s=self._live_since_s,
            status=status,
            shape=shape,
            standbys=int(self._spec.options["standbys"]),
            with_keepers=self._with_keepers,
            killed=self._killed,
            is_disturbed=bool(self._ongoing),
            records=self._records_read(status),
            slots_usual=self._slots_usual,
        )

    # ------------------------------------------------------------------ reports of the driver

    def _take(self, line: dict[str, Any]) -> None:
        if "shape" in line:
            shape = line["shape"]
            edges = tuple((sender, receiver) for sender, receiver in shape["edges"])
            self._shape = Shape(tuple(shape["tasks"]), edges, tuple(shape["sources"]))
            self._tools.channels = [(sender, receiver) for sender, receiver in shape["channels"]]
        elif "end" in line:
            self.record.left_behind += line["end"]["left"]
            self._take_end(line["end"]["failure"])
        else:
            self.record.alarms += line["alarms"]
            if line["generation"]:
                self.record.generations.add(line["generation"])
            self._see(status_of(line))
            self._standbys = line["standbys"]
            self._with_keepers = set(line["with_keepers"])

    def _take_end(self, failure: str) -> None:
        """Ends the run, or resumes the failed job without its faults if the scenario expects that."""
        if failure and self.scenario.expected.outcome is ScenarioOutcome.RESUMED and not self.record.first_failure:
            self.record.first_failure = failure
            self._end_lasting(lambda _: True)
            self._resume()
            return
        self._is_over = True
        self.record.failure = failure

    def _see(self, status: Status) -> None:
        self._status = status
        self.record.add_sample(status, wall_ns())
        if self.scenario.needs_attackers:
            self._memory.look([self._driver.pid, *(slot.pid for slot in status.slots if slot.pid)])
        for slot in status.slots:
            if slot.slot not in self._processes:
                self._processes[slot.slot] = process_of(slot.pid)
        if not self._live_since_s and is_live(status):
            self._live_since_s = time.monotonic()
            self._slots_usual = len(status.slots)
        self.record.moves.update((move.task, move.incarnation) for move in status.moves if move.is_over)
        for recovery in status.recoveries:
            self._recoveries[recovery.task, recovery.failed_incarnation] = recovery
        for task in status.tasks:
            now = (task.pid, task.incarnation)
            before = self._known.get(task.name)
            if before is not None and now != before and task.pid:
                if self._may_restart_until_s.get(task.name, 0.0) < time.monotonic() and not has_moved(status, task):
                    self.record.disturbed.append(f"{task.name} {before} -> {now}")
                else:
                    self._may_restart_until_s[task.name] = time.monotonic() + RESTART_AGAIN_S
            if task.pid:
                self._known[task.name] = now

    def _records_read(self, status: Status) -> int:
        if self._course is not None:
            return self._course.gate.records
        sources = set(self._shape.sources) if self._shape is not None else set()
        return sum(task.counters.get("records_in", 0) for task in status.tasks if task.name in sources)

    # ------------------------------------------------------------------ injection

    def _inject(self, planned: PlannedFault, status: Status, shape: Shape) -> None:
        if self._course is not None:
            self._course.note_holdings(status)
        fault = planned.fault
        if fault.kind is FaultKind.KILL_DRIVER:
            self._kill_driver(planned)
            return
        tasks = [] if fault.kind in TASKLESS else choose(fault, shape, self._rng, planned.victim)
        by_name = {task.name: task for task in status.tasks}
        if any(not by_name[name].pid for name in tasks):
            return  # it waits for a slot: try again later
        others = [slot for name in tasks[:1] for slot in self._standbys.get(name, ())]
        others = others if fault.pattern in BACKUP_PATTERNS else []
        if fault.pattern is Pattern.STANDBY and not others:
            return  # it has no standby now: try again later
        planned.left -= 1
        planned.asked_s = 0.0 if planned.left else planned.asked_s
        if tasks:
            planned.victim = tasks[0]
        if fault.pattern is Pattern.STANDBY:
            homes = {task.name for task in status.tasks if task.slot in others}
            tasks = sorted(homes - {planned.victim})  # tasks that run in the slot of the standby
        targets = tasks_of(shape, fault.victim) if fault.kind is FaultKind.USER_ERROR else tasks
        affected = _affected(fault, status, targets, others)
        injection = Injection(
            fault.kind, tasks, wall_ns(), incarnations={name: by_name[name].incarnation for name in affected}
        )
        self._may_restart_until_s |= dict.fromkeys(affected, inf)
        if fault.kind in (FaultKind.KILL_WORKER, FaultKind.KILL_DOMAIN):
            self._killed.update(injection.incarnations)
        injection.detail = f"at {fault.at}" if fault.at.point else ""
        if fault.kind is FaultKind.ATTACK:
            self._memory.begin()
        lasting = inject(fault, status, tasks, others, self._tools, self._driver.pid)
        if lasting is not None:
            injection.detail = f"for {fault.lasts_ms} ms {lasting.detail} {injection.detail}".rstrip()
            self._ongoing.append(Ongoing(fault, injection, lasting, time.monotonic() + fault.lasts_ms / 1000))
        self.record.injections.append(injection)
        self._release(planned)

    def _release(self, planned: PlannedFault) -> None:
        """Releases the thread at the breakpoint, if its process lives."""
        if planned.breakpoint is not None:
            planned.breakpoint.release()
            planned.breakpoint = None

    def _end_lasting(self, is_over: Callable[[Ongoing], bool]) -> None:
        for ongoing in [one for one in self._ongoing if is_over(one)]:
            self._ongoing.remove(ongoing)
            ongoing.lasting.end()
            ongoing.injection.until_ns = wall_ns()
            ongoing.injection.detail = f"{ongoing.injection.detail} {ongoing.lasting.detail_at_end()}".rstrip()
            counts, effects = ongoing.lasting.counts, ongoing.lasting.effect_count()
            if counts and not self.scenario.limits.stop_after:
                found = str(effects) if effects else f"0: {ongoing.lasting.detail_at_end() or 'none at all'}"
                self.record.checks.append(Check(counts, "at least 1", found, effects > 0))

    def _kill_driver(self, planned: PlannedFault) -> None:
        """Kills the driver, whose slots end with it, and starts another one, which resumes in a new generation."""
        planned.left -= 1
        injection = Injection(planned.fault.kind, [], wall_ns(), detail="and resume")
        self.record.injections.append(injection)
        self._driver.kill()
        self._release(planned)
        self._driver.lines()
        self._resume()

    def _resume(self) -> None:
        """Starts another driver, which resumes in a new generation, after the last one has ended."""
        self._driver.close()
        wait_until_gone(self._processes.values(), GONE_WITHIN_S)
        self._known.clear()
        self._may_restart_until_s.clear()
        self._killed.clear()
        self._live_since_s = 0.0
        self._status = None
        self._driver = self._start_driver(msgspec.structs.replace(self._spec, resume=True))

    # ------------------------------------------------------------------ the end

    def _see_processes_end(self) -> None:
        for pid in wait_until_gone(self._processes.values(), GONE_WITHIN_S):
            self.record.left_behind.append(f"process {pid}")
        root = self._tools.local_root
        folders = [root / f"{slot:016x}" for slot in sorted(self._processes)]
        sweep(root)  # removes what killed processes left, as the next start does
        self.record.left_behind += [f"folder {folder}" for folder in folders if folder.exists()]
        if self._tools.volumes is not None:
            self._tools.volumes.remove_local()
        if self._course is not None:
            self.record.remainder = self._course.remainder

    def _ask_oracle(self) -> None:
        scenario, record = self.scenario, self.record
        if record.failure:
            return
        if scenario.job in ORACLES:
            record.findings = ORACLES[scenario.job](self.folder)
        elif self._oracle is not None:
            try:
                record.findings = Findings(**self._oracle(self.folder))
            except Exception as error:  # noqa: BLE001  user code: its error must not lose the other findings
                record.failure = f"the oracle {scenario.oracle} has raised {type(error).__name__}: {error}"
        else:
            record.notes.append('no oracle has judged the output: name one with oracle = "module:function"')


def _affected(fault: FaultSpec, status: Status, tasks: list[str], others: list[int]) -> list[str]:
    """Returns all tasks that the fault may restart: those in the same process or domain."""
    slots = {task.slot for task in status.tasks if task.name in tasks} | set(others)
    domains = {slot.domain for slot in status.slots if slot.slot in slots}
    if fault.kind in (FaultKind.KILL_DOMAIN, FaultKind.PARTITION):
        return [task.name for task in status.tasks if task.domain in domains]
    return [task.name for task in status.tasks if task.slot in slots]

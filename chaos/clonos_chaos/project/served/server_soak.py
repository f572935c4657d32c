"""Soak through a server of jobs: kills of tasks, executors, drivers and the server itself, and an exact output.

The job is the shipped one, submitted as a user submits it. It reads at a fixed rate; the kills come at random, by seed.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import psutil

from clonos.core.model.progress import SETTLED_PHASES
from clonos.io.system.wall_clock import wall_ns
from clonos.status import RecoveryState
from clonos_chaos.project.served.feeding import feeding
from clonos_chaos.project.served.output_watch import OutputWatch, unavailable_ns
from clonos_chaos.project.served.server_process import ServerFailed, ServerProcess
from clonos_chaos.real.run_driver import child_environment
from clonos_chaos.real.runner_watch import process_of, wait_until_gone
from clonos_chaos.runs.soak import PER_SECOND, START_S
from clonos_chaos.scenario.run_record import Check, Injection, RunRecord, Sample, task_retained_bytes
from clonos_chaos.scenario.scenario import FaultKind, Scenario, ScenarioLimits
from clonos_chaos.scenario.scenario_gate import SOURCES, Gate
from clonos_chaos.scenario.scenario_oracle import judge_folder
from clonos_chaos.scenario.scenario_service import ServiceProcess

KILL_SERVER: Final = "kill_server"
SHARES: Final = {FaultKind.KILL_WORKER: 6, FaultKind.KILL_DOMAIN: 2, FaultKind.KILL_DRIVER: 1, KILL_SERVER: 1}
"""How often a kind of kill is drawn. Process slots have no domains to kill."""

AVAILABILITY_PERCENT: Final = 99.9
MASTER: Final = "local-cluster[3,4,1024]"
"""One executor of three may be lost, and every task still has a slot."""

STALE_NS: Final = 1_000_000_000
"""The output is available while its newest row is at most this old."""

RESTART_NS: Final = 60_000_000_000
"""Time after the death of a driver in which the longest silence counts as its."""

END_S: Final = 180.0
LOOK_EVERY_S: Final = 0.1
SAMPLE_EVERY_S: Final = 1.0
GONE_WITHIN_S: Final = 15.0

JOB: Final = """
from pathlib import Path

from clonos_chaos.scenario.scenario_job import described

job = described(Path({folder!r}), {url!r})
"""


@dataclass(frozen=True, slots=True)
class ServerSoak:
    """Options of the command line."""

    minutes: float = 60.0
    kill_every_s: float = 20.0
    slots: str = "process"
    seed: int = 1


class ServerSoakRun:
    """Run of a soak in a folder. ``run`` performs it."""

    def __init__(self, soak: ServerSoak, folder: Path) -> None:
        self._soak, self._folder = soak, folder
        seconds = soak.minutes * 60
        scenario = Scenario(
            name=f"soak of {soak.minutes:g} minutes through a server",
            job="described",
            about=f"Every {soak.kill_every_s:g} s a task, an executor, a driver or the server is killed.",
            limits=ScenarioLimits(seconds=seconds + END_S),
        )
        self.record = RunRecord(scenario, soak.seed, f"{soak.slots} slots")
        self._rng = Random(soak.seed)
        self._gate = Gate(folder)
        self._status: dict[str, Any] = {}
        self._recoveries: dict[tuple[int, str, int], RecoveryState] = {}
        self._processes: dict[int, psutil.Process | None] = {}
        self._sampled_s = 0.0

    def run(self) -> RunRecord:
        """Runs the soak and judges it."""
        soak, folder = self._soak, self._folder
        with ExitStack() as stack:
            service = ServiceProcess(folder / "calls.jsonl", child_environment())
            stack.callback(service.close)
            strategy = ("--restart-strategy", "fixed-delay:attempts=1000")
            self._server = ServerProcess(folder / "server", child_environment(), *strategy)
            stack.callback(self._server.close)
            self._server.start()
            file = folder / "soak.py"
            file.write_text(JOB.format(folder=str(folder), url=service.url), "utf-8")
            options = {"slots": soak.slots, "checkpoint_every": "2s", "step_records_max": 64, "standbys": 1}
            options |= {"spare_slots": 2, "master": MASTER} if soak.slots == "spark" else {"spare_slots": 2}
            self._job = self._server.submit(file, options)
            self._watch = OutputWatch(folder / "table.sqlite")
            stack.callback(self._watch.close)
            self.record.began_ns = wall_ns()
            self._feed_and_kill()
            self._end()
            self.record.ended_ns = wall_ns()
        self.record.recoveries = list(self._recoveries.values())
        self._judge()
        return self.record

    # ------------------------------------------------------------------ the course

    def _feed_and_kill(self) -> None:
        """Opens the gate at the given rate, and kills at each interval."""
        self._wait_for_tasks()
        begun_s = time.monotonic()
        with feeding(self._gate, PER_SECOND):
            seconds, kill_s = self._soak.minutes * 60, START_S
            while (elapsed_s := time.monotonic() - begun_s) < seconds:
                self._look()
                if elapsed_s >= kill_s and self._status:
                    self._kill()
                    kill_s = elapsed_s + self._soak.kill_every_s
                time.sleep(LOOK_EVERY_S)

    def _wait_for_tasks(self) -> None:
        """Waits for the first status that has tasks, so that the minutes of the soak do not pass during its start."""
        deadline_s = time.monotonic() + END_S
        while not self._status and time.monotonic() < deadline_s:
            self._look()
            time.sleep(LOOK_EVERY_S)

    def _end(self) -> None:
        """Ends the input, and waits for the end of the job."""
        self._gate.end()
        deadline_s = time.monotonic() + END_S
        while time.monotonic() < deadline_s:
            self._look()
            with suppress(ServerFailed):
                found = self._server.get(f"/jobs/{self._job}")
                if found["ended_at"] is not None:
                    self.record.failure = (
                        "" if found["status"] == "FINISHED" else f"{found['status']}: {found['error']}"
                    )
                    return
            time.sleep(LOOK_EVERY_S)
        self.record.failure = f"the job has not ended within {END_S:g} s after its input"

    def _look(self) -> None:
        """Reads the status; while no driver answers, the last one stays."""
        try:
            status = self._server.get(f"/jobs/{self._job}/status")
        except ServerFailed:
            return
        if not status["tasks"]:
            return
        self._status = status
        job = status["job"]
        self.record.checkpoints = max(self.record.checkpoints, job["checkpoint"])
        self.record.generations.add(job["generation"])
        for each in status["slots"]:
            if each["pid"] not in self._processes:
                self._processes[each["pid"]] = process_of(each["pid"])
        for each in status["recoveries"]:
            self._recoveries[job["generation"], each["task"], each["failed_incarnation"]] = _recovery(each)
        if time.monotonic() - self._sampled_s >= SAMPLE_EVERY_S:
            self._sampled_s = time.monotonic()
            live = sum(task["phase"] in SETTLED_PHASES for task in status["tasks"])
            retained = sum(task_retained_bytes(task["counters"]) for task in status["tasks"])
            self.record.samples.append(Sample(wall_ns(), live, job["checkpoint"], retained))

    # ------------------------------------------------------------------ kills

    def _kill(self) -> None:
        kinds = {kind: share for kind, share in SHARES.items() if self._has(kind)}
        (kind,) = self._rng.choices(list(kinds), list(kinds.values()))
        injection = Injection(str(kind), [], wall_ns())
        if kind == KILL_SERVER:
            self._server.kill()
            self._server.start()
            injection.until_ns = wall_ns()
        elif kind == FaultKind.KILL_DRIVER:
            if not self._server.kill_driver(self._job):
                return
        else:
            victim = self._rng.choice(self._status["tasks"])
            is_domain = kind == FaultKind.KILL_DOMAIN
            pid = _executor_of(victim["pid"]) if is_domain else victim["pid"]
            if not pid:  # it has just ended; a signal for 0 is one for this process group
                return
            hit = [
                task
                for task in self._status["tasks"]
                if (_executor_of(task["pid"]) if is_domain else task["pid"]) == pid
            ]
            injection.tasks = [task["name"] for task in hit]
            injection.incarnations = {task["name"]: task["incarnation"] for task in hit}
            _send_kill(pid)
        self.record.injections.append(injection)

    def _has(self, kind: str) -> bool:
        return kind != FaultKind.KILL_DOMAIN or self._soak.slots == "spark"

    # ------------------------------------------------------------------ the verdict

    def _judge(self) -> None:
        record, checks = self.record, self.record.checks
        record.findings = found = judge_folder(self._folder, SOURCES)
        checks.append(Check("the job", "ends", record.failure or "has ended", not record.failure))
        for name in ("lost", "duplicated", "contradicted", "disordered"):
            count = getattr(found, name)
            checks.append(Check(name, "0", str(count), not count))
        kinds = {kind: sum(one.kind == kind for one in record.injections) for kind in SHARES}
        record.notes.append(", ".join(f"{count} x {kind}" for kind, count in kinds.items() if count))
        record.notes.append(
            f"{found.records:,} records, {record.checkpoints} checkpoints, {len(record.recoveries)} recoveries;"
            f" {found.calls:,} calls, {found.calls_repeated} repeated, {found.calls_needless} needlessly"
        )
        kills_ns = [one.at_ns for one in record.injections if one.kind == FaultKind.KILL_DRIVER]
        ends_ns = [*kills_ns[1:], record.ended_ns][: len(kills_ns)]
        # Slots may write for a moment after the death of their driver, so the next row does not end the silence.
        spans = [
            self._watch.longest_gap_ns(at_ns, min(until_ns, at_ns + RESTART_NS))
            for at_ns, until_ns in zip(kills_ns, ends_ns, strict=True)
        ]
        for limit_ns in (STALE_NS, STALE_NS // 4):
            unavailable, whole = unavailable_ns(self._watch.grown_ns, spans, limit_ns)
            percent = 100 * (1 - unavailable / whole) if whole else 0.0
            text = f"availability of output, newest row at most {limit_ns / 1e9:g} s old, without drivers' deaths"
            if limit_ns == STALE_NS:
                is_good = percent >= AVAILABILITY_PERCENT
                checks.append(Check(text, f"at least {AVAILABILITY_PERCENT} %", f"{percent:.3f} %", is_good))
            else:
                record.notes.append(f"{text}: {percent:.3f} %")
        if spans:
            each = ", ".join(f"{(until_ns - since_ns) / 1e9:.2f}" for since_ns, until_ns in spans)
            record.notes.append(f"silence after each death of a driver, s: {each}")
        for kind in (FaultKind.KILL_WORKER, FaultKind.KILL_DOMAIN, KILL_SERVER):
            if others := self._silences_ms(kind):
                record.notes.append(
                    f"{kind}: next row after {median(others):.0f} ms (median), {max(others):.0f} ms (worst)"
                )
        alive = wait_until_gone(self._processes.values(), GONE_WITHIN_S)
        checks.append(Check("left behind", "nothing", f"processes {alive}" if alive else "nothing", not alive))

    def _silences_ms(self, kind: str) -> list[float]:
        """Returns the time from each kill of a kind until the next new row."""
        found = [self._watch.silence_ns(one.at_ns) for one in self.record.injections if one.kind == kind]
        return [silence_ns / 1e6 for silence_ns in found if silence_ns is not None]


def _recovery(document: dict[str, Any]) -> RecoveryState:
    return RecoveryState(
        task=document["task"],
        failed_incarnation=document["failed_incarnation"],
        incarnation=document["incarnation"],
        cause=document["cause"],
        reached={phase["name"]: _instant_ns(phase["at"]) for phase in document["phases"]},
        replayed_records=document["replayed_records"],
        replayed_calls=document["replayed_calls"],
        executed_calls=document["executed_calls"],
    )


def _instant_ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1e6) * 1000


def _send_kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _executor_of(pid: int) -> int:
    """Returns the JVM above the process of a slot; 0 if the process has ended."""
    with suppress(psutil.NoSuchProcess):
        return next((parent.pid for parent in psutil.Process(pid).parents() if parent.name() == "java"), 0)
    return 0

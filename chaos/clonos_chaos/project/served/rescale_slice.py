"""Slice of a run of rescales: one job on real processes whose widths change while it reads, with a kill in each change.

After each change all tasks must run, with the old widths or the new ones. When the slice ends, the oracle of the job
reads all outputs.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from clonos.core.model.errors import ClonosError
from clonos.core.model.progress import TaskPhase
from clonos.io.process.fault_points import FaultPoint, FaultPointReached
from clonos.status import RescalePhase
from clonos_chaos.project.served.feeding import feeding
from clonos_chaos.project.served.rescale_kills import AFTER_VIEW, KILLS, RescaleKill, Victim
from clonos_chaos.project.served.rescaled_job import SPLITS, STEPS, judge_rescaled
from clonos_chaos.project.served.server_process import ServerFailed, ServerProcess
from clonos_chaos.project.slices import SliceFailed
from clonos_chaos.real.fault_point_server import Breakpoint, FaultPointServer
from clonos_chaos.real.run_driver import child_environment
from clonos_chaos.scenario.scenario_gate import SOURCES, Gate

NARROW, WIDE = 2, 4
LIMIT_S: Final = 300.0
"""Time in which a change and its recoveries end, and after its input the next row comes or the job ends."""

REACHED_S: Final = 60.0
LOOK_EVERY_S: Final = 0.02
OPTIONS: Final = {"slots": "process", "checkpoint_every": "3s", "standbys": 1, "lease": "60s"}
PROGRAM: Final = """
from pathlib import Path

from clonos_chaos.project.served.rescaled_job import rescaled

job = rescaled(Path({folder!r}))
"""
POINTS: Final = ",".join(sorted({kill.when for kill in KILLS if isinstance(kill.when, FaultPoint)}))
"""Fault points that are armed; the others, which a task reaches at each step, cost nothing."""

OVER: Final = (RescalePhase.DONE, RescalePhase.REFUSED)


class SliceRecord(msgspec.Struct):
    """Results of a slice. ``kills``: by the kill, how many changes were done and how many given up. ``plain``: the same
    of changes without a kill. ``missed``: kills whose moment did not come. ``reasons``: of changes that were given up,
    with their number. ``failure``: what went wrong with the job."""

    number: int
    done: int = 0
    given_up: int = 0
    kills: dict[str, tuple[int, int]] = {}
    plain: tuple[int, int] = (0, 0)
    missed: int = 0
    reasons: dict[str, int] = {}
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    contradicted: int = 0
    disordered: int = 0
    examples: dict[str, list[str]] = {}
    failure: str = ""
    seconds: float = 0.0

    @property
    def made(self) -> int:
        """Returns the number of changes that were asked for."""
        return self.done + self.given_up

    @property
    def is_good(self) -> bool:
        """Returns whether the job ran on after each change, and nothing was lost, duplicated or contradicted."""
        return not self.failure and not self.lost + self.duplicated + self.contradicted + self.disordered


class RescaleSlice:
    """One job in a folder. ``run`` performs the changes with these kills, one after the other."""

    def __init__(self, number: int, folder: Path, kills: Sequence[RescaleKill], per_second: float) -> None:
        self.record = SliceRecord(number)
        self._folder, self._kills, self._per_second = folder, kills, per_second
        self._rng = Random(number)
        self._job = ""
        self._status: dict[str, Any] = {}
        self._killed_at = datetime.min.replace(tzinfo=UTC)  # when the driver of now had come after a kill

    def run(self, on_change: Callable[[SliceRecord], bool]) -> SliceRecord:
        """Runs the slice and judges it. ``on_change``: called after each change, returns whether to go on."""
        began_s = time.monotonic()
        gate = Gate(self._folder)
        with ExitStack() as stack:
            self._points = stack.enter_context(FaultPointServer())
            strategy = ("--restart-strategy", "fixed-delay:attempts=1000")
            self._server = ServerProcess(self._folder / "server", child_environment(), *strategy, limit_s=LIMIT_S)
            stack.callback(self._server.close)
            try:
                self._server.start()
                program = self._folder / "rescaled.py"
                program.write_text(PROGRAM.format(folder=str(self._folder)), "utf-8")
                self._job = self._server.submit(program, OPTIONS | {"fault_points": f"{self._points.address}/{POINTS}"})
                with feeding(gate, self._per_second * SOURCES / SPLITS):  # the gate counts those of its usual splits
                    self._settle({NARROW})
                    for kill in self._kills:
                        self._change(kill)
                        if not on_change(self.record):
                            break
                gate.end()
                self._wait_for_end()
            except (ClonosError, TimeoutError) as error:
                self.record.failure = str(error)
        if not self.record.failure:
            self._judge()
        self.record.seconds = time.monotonic() - began_s
        return self.record

    def _judge(self) -> None:
        found = judge_rescaled(self._folder)
        self.record.records, self.record.examples = found.records, found.examples
        for name in ("lost", "duplicated", "contradicted", "disordered"):
            setattr(self.record, name, getattr(found, name))

    # ------------------------------------------------------------------ one change

    def _change(self, kill: RescaleKill) -> None:
        """Asks for the other width, kills, and waits until all tasks run."""
        if kill.when is RescalePhase.ORDERING:
            if self._width() == WIDE:
                self._rescale(None)
            for pid in self._spare_pids():
                _send_kill(pid)
        self._rescale(kill)

    def _rescale(self, kill: RescaleKill | None) -> None:
        before = self._width()
        after = NARROW if before == WIDE else WIDE
        point = self._breakpoint(kill)
        try:
            number = self._server.rescale(self._job, dict.fromkeys(STEPS, after))
        except ServerFailed as error:  # refused
            number = 0
            self._note_reason(str(error))
        was_decided = False
        if number and kill is not None:
            was_killed, was_decided = self._kill(kill, point)
            self.record.missed += not was_killed
            kill = kill if was_killed else None
        elif point is not None:
            self._points.withdraw(point)
        self._settle({before, after})
        is_done = self._width() == after
        if was_decided and not is_done:
            raise SliceFailed(f"the change to {after} tasks was given up after its checkpoint, by {kill}")
        self._count(kill if number else None, is_done)

    def _count(self, kill: RescaleKill | None, is_done: bool) -> None:
        record = self.record
        record.done += is_done
        record.given_up += not is_done
        done, given_up = record.plain if kill is None else record.kills.get(str(kill), (0, 0))
        counts = (done + is_done, given_up + (not is_done))
        if kill is None:
            record.plain = counts
        else:
            record.kills[str(kill)] = counts
        rescale = self._status["rescale"] or {}
        if rescale.get("phase") == RescalePhase.REFUSED:
            self._note_reason(rescale["text"])

    def _note_reason(self, reason: str) -> None:
        self.record.reasons[reason] = self.record.reasons.get(reason, 0) + 1

    def _breakpoint(self, kill: RescaleKill | None) -> Breakpoint | None:
        """Sets the breakpoint of a kill. One after the view is set when the state is divided: all tasks stand then."""
        if kill is None or not isinstance(kill.when, FaultPoint):
            return None
        if kill.is_between_cut_and_view:
            return self._points.set_breakpoint(kill.when, where=self._is_at_cut)
        return self._points.set_breakpoint(FaultPoint.DIVIDED if kill.when in AFTER_VIEW else kill.when)

    def _is_at_cut(self, reached: FaultPointReached) -> bool:
        """Returns whether a thread has reached a point of the checkpoint at which all tasks stop. Called by the thread
        of the fault points."""
        with suppress(ServerFailed):
            rescale = self._server.get(f"/jobs/{self._job}/status")["rescale"] or {}
            return reached.detail == str(rescale.get("checkpoint"))
        return False

    def _kill(self, kill: RescaleKill, point: Breakpoint | None) -> tuple[bool, bool]:
        """Kills at its moment. Returns whether that came, and whether nothing could give the change up by then."""
        if point is None:
            if not self._await_phase(kill.when):
                return False, False
            self._inject(kill, None)
            return True, kill.is_decided
        hit = self._await_hit(point)
        if hit is not None and kill.when in AFTER_VIEW:
            following = self._points.set_breakpoint(kill.when)
            self._points.withdraw(point)
            point, hit = following, self._await_hit(following)
        try:
            if hit is None:
                return False, False
            self._inject(kill, hit)
            return True, kill.is_decided
        finally:
            self._points.withdraw(point)

    def _inject(self, kill: RescaleKill, hit: FaultPointReached | None) -> None:
        if kill.victim in (Victim.DRIVER, Victim.BOTH):
            self._kill_driver()
        if kill.victim is Victim.HERE:
            assert hit is not None, kill
            _send_kill(hit.pid)
        if kill.victim in (Victim.SLOT, Victim.BOTH):
            self._look()
            here = hit.pid if hit is not None else 0
            pids = sorted({task["pid"] for task in self._status["tasks"]} - {0, here})
            if pids:
                _send_kill(self._rng.choice(pids))

    def _kill_driver(self) -> None:
        """Kills the driver, and waits until another one has the job."""
        before = self._server.driver_of(self._job)
        self._server.kill_driver(self._job)
        self._await(lambda: self._server.driver_of(self._job) not in (None, before), "no driver came after a kill")
        self._killed_at = datetime.now(UTC)

    def _await_phase(self, phase: str) -> bool:
        """Waits until the status shows a phase; returns whether it has."""
        deadline_s = time.monotonic() + REACHED_S
        while time.monotonic() < deadline_s:
            self._look()
            found = (self._status.get("rescale") or {}).get("phase")
            if found == phase or found in OVER:
                return bool(found == phase)
            time.sleep(LOOK_EVERY_S)
        return False

    def _await_hit(self, point: Breakpoint) -> FaultPointReached | None:
        """Waits until a thread stands at a breakpoint. Returns None if the change ends without that."""
        deadline_s = time.monotonic() + REACHED_S
        while time.monotonic() < deadline_s:
            with suppress(TimeoutError):
                return point.wait(0.1)
            self._look()
            if (self._status.get("rescale") or {}).get("phase") in OVER:
                return point.hit
        return None

    # ------------------------------------------------------------------ the state of the job

    def _look(self) -> bool:
        """Reads the status. Returns whether a driver has answered; while none does, the last status stays.

        The server may give what the driver before had reported, while the next one does not answer yet.
        """
        with suppress(ServerFailed):
            found = self._server.get(f"/jobs/{self._job}/status")
            if found["tasks"] and datetime.fromisoformat(found["at"]) >= self._killed_at:
                self._status = found
                return True
        return False

    def _width(self) -> int:
        return max(Counter(task["vertex"] for task in self._status["tasks"]).values())

    def _spare_pids(self) -> list[int]:
        used = {task["pid"] for task in self._status["tasks"]}
        return [slot["pid"] for slot in self._status["slots"] if slot["pid"] and slot["pid"] not in used]

    def _settle(self, widths: set[int]) -> None:
        """Waits until no change is under way and all tasks run, all with one of these widths."""

        def is_settled() -> bool:
            has_answered, found = self._look(), self._status
            if not has_answered or found["job"]["status"] != "RUNNING":
                self._see_it_runs()
                return False
            if found["rescale"] is not None and found["rescale"]["phase"] not in OVER:
                return False
            return all(task["phase"] == TaskPhase.LIVE for task in found["tasks"])

        self._await(is_settled, "the tasks do not run again after a change")
        found = Counter(task["vertex"] for task in self._status["tasks"])
        if len(set(found.values())) != 1 or not set(found.values()) <= widths:
            raise SliceFailed(f"the numbers of tasks are {dict(found)}, and not one of {sorted(widths)}")

    def _see_it_runs(self) -> None:
        with suppress(ServerFailed):
            found = self._server.get(f"/jobs/{self._job}")
            if found["ended_at"] is not None:
                raise SliceFailed(f"the job has ended as {found['status']}: {found['error']}".rstrip("."))

    def _wait_for_end(self) -> None:
        def has_ended() -> bool:
            with suppress(ServerFailed):
                found = self._server.get(f"/jobs/{self._job}")
                if found["ended_at"] is not None and found["status"] != "FINISHED":
                    raise SliceFailed(f"the job has ended as {found['status']}: {found['error']}".rstrip("."))
                return found["ended_at"] is not None
            return False

        table = self._folder / "table.sqlite"
        complaint = "the job does not end after its input"
        self._await(has_ended, complaint, lambda: table.stat().st_mtime_ns if table.exists() else 0)

    def _await(self, condition: Callable[[], bool], complaint: str, progress: Callable[[], int] = lambda: 0) -> None:
        """Waits for a condition, as long as there is ``progress``. Raises: SliceFailed: it does not hold in time."""
        deadline_s, before = time.monotonic() + LIMIT_S, progress()
        while not condition():
            if (now := progress()) != before:
                deadline_s, before = time.monotonic() + LIMIT_S, now
            if time.monotonic() >= deadline_s:
                raise SliceFailed(f"{complaint}, within {LIMIT_S:g} s: {self._summary()}")
            time.sleep(LOOK_EVERY_S)

    def _summary(self) -> str:
        if not self._status:
            return "no task ran"
        phases = Counter(task["phase"] for task in self._status["tasks"])
        return f"the job is {self._status['job']['status']}, its tasks {dict(phases)}, {self._status['rescale']}"


def _send_kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

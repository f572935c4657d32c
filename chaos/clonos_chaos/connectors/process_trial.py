"""Trial of a connector on real processes: a job under load, whose tasks, keepers and driver are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import psutil

from clonos.connectors import files
from clonos.connectors.connector_errors import InputMissing
from clonos.core.model.errors import EnvironmentFault
from clonos.io.system.readiness import wait_readable
from clonos.status import Status
from clonos_chaos.connectors.tested_jobs import PACKED, TESTED, MakeJob, pack_job, truth_folder
from clonos_chaos.real.fault_triggers import is_whole
from clonos_chaos.real.run_driver import RunDriver, status_of
from clonos_chaos.real.runner_driver import DriverSpec
from clonos_chaos.real.runner_watch import process_of, wait_until_gone
from clonos_chaos.scenario.scenario_gate import Gate

LOOK_EVERY_S: Final = 0.02
GONE_WITHIN_S: Final = 10.0
LIMIT_S: Final = 60.0
TRIES_MAX: Final = 3
PER_SECOND: Final = 1_000
OPTIONS: Final[dict[str, Any]] = {
    "checkpoint_every": "500ms",
    "heartbeat": "250ms",
    "lease": "5s",
    "slots": "process",
    "domains": 0,
    "spare_slots": 1,
    "step_records_max": 16,
    "step_records_first": 4,
}


class JobEnded(Exception):
    """The job has ended before its time; the text is its error."""


class TrialStuck(EnvironmentFault):
    """A step of a trial has not come within its time."""

    awaited: str
    seconds: float
    state: str

    def __str__(self) -> str:
        return f"{self.awaited} has not come within {self.seconds:g} s: {self.state}."


class ProcessTrial:
    """Job of one trial. ``goal``: number of records that it may have taken; ``load`` raises it.

    ``write``: puts records of these numbers before a source, else the gated source gives them at ``PER_SECOND``.
    ``counts_rollbacks``: whether rows may have left since the checkpoint, so that the death of all processes must
    roll the job back.
    """

    def __init__(
        self,
        make: MakeJob,
        folder: Path,
        step: int,
        *,
        write: Callable[[range], object] | None = None,
        counts_rollbacks: bool = False,
        limit_s: float = LIMIT_S,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True)
        pack_job(make, folder)
        self.folder, self.goal, self._step, self._limit_s = folder, 0, step, limit_s
        self._write, self._counts_rollbacks = write, counts_rollbacks
        self._gate = Gate(folder)
        self._opened_s = time.monotonic()
        self._spec = DriverSpec(PACKED, str(folder), "", OPTIONS | {"store": str(folder / "store")}, {})
        self._status: Status | None = None
        self._with_keepers: set[str] = set()
        self._processes: dict[int, psutil.Process | None] = {}
        self._ended: str | None = None
        self.alarms: list[str] = []
        self.injected = 0
        self._driver = RunDriver(self._spec, folder, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._driver.close()
        for process in self._processes.values():  # of a driver that was killed
            if process is not None:
                with suppress(psutil.Error):
                    process.kill()
        wait_until_gone(self._processes.values(), GONE_WITHIN_S)

    # ------------------------------------------------------------------ waiting

    def load(self) -> None:
        """Gives the job a step of records and waits until half of them are taken. Raises as ``wait_for`` does."""
        before = self.goal
        self.goal, self._opened_s = before + self._step, time.monotonic()
        if self._write is not None:
            self._write(range(before, self.goal))
        self.wait_until_taken(before + self._step // 2)

    def wait_until_taken(self, records: int) -> None:
        """Waits until the tasks under test have taken this many records. Raises as ``wait_for`` does."""
        self.wait_for(lambda status: self._taken(status) >= records, f"record {records} at the connector")

    def wait_for(self, condition: Callable[[Status], bool], awaited: str) -> None:
        """Waits until the status of the job is so.

        Raises: JobEnded: the job has ended. TrialStuck: the time of a step has passed.
        """
        deadline_s = time.monotonic() + self._limit_s
        while self._status is None or not condition(self._status):
            self._look()
            if self._ended is not None:
                raise JobEnded(self._ended)
            if time.monotonic() > deadline_s:
                raise TrialStuck(awaited, self._limit_s, self._shown())

    def wait_until_whole(self) -> None:
        """Waits until all tasks run and have their keepers, after a checkpoint. Raises as ``wait_for`` does."""
        self.wait_for(
            lambda status: status.checkpoint > 0 and is_whole(status, 0, self._with_keepers),
            "the recovery of all tasks",
        )

    def wait_for_rows(self, count: int, quiet_s: float) -> None:
        """Waits until the job's own output has ``count`` different rows, or no new ones for ``quiet_s``.

        Raises: JobEnded: the job has ended.
        """
        found, quiet_until_s = 0, time.monotonic() + quiet_s
        while found < count and time.monotonic() < quiet_until_s:
            self._look()
            if self._ended is not None:
                raise JobEnded(self._ended)
            now = len({row["n"] for row in self.rows()})
            if now > found:
                found, quiet_until_s = now, time.monotonic() + quiet_s

    def wait_for_end(self) -> str:
        """Waits until the job has ended; returns its error, or "".

        Raises: TrialStuck: the time of a step has passed.
        """
        try:
            self.wait_for(lambda _: False, "the end of the job")
        except JobEnded as ended:
            return str(ended)
        raise AssertionError("no status ends this wait")

    def end_input(self) -> None:
        """Ends the gated source after the rows that were admitted."""
        self._gate.open_to(self.goal)
        self._gate.end()

    def stop(self) -> None:
        """Stops the job with a final checkpoint."""
        self._driver.stop()

    def rows(self) -> list[dict[str, int]]:
        """Returns the committed rows of the job's own output: none before its first checkpoint."""
        try:
            return list(files.read_committed(truth_folder(self.folder)))
        except InputMissing:
            return []

    # ------------------------------------------------------------------ faults

    def kill_task(self, turn: int, step: str = TESTED) -> None:
        """Kills the process of a task of a step; its keepers live."""
        self.wait_until_whole()
        tasks = [task for task in self._now().tasks if step in task.name]
        victim = tasks[turn % len(tasks)]
        self._kill([victim.pid], {victim.name: victim.incarnation})

    def kill_all(self) -> None:
        """Kills the processes of all tasks with their keepers at once. Raises as ``wait_for`` does.

        The job rolls back if an immediate sink has rows that no checkpoint contains. It is asked for several times,
        because there may be none at the moment, or the sink may have forgotten them.
        """
        generation = self._now().generation
        for _ in range(TRIES_MAX):
            status = self._now()
            before = {task.name: task.incarnation for task in status.tasks}
            self._kill([slot.pid for slot in status.slots if slot.pid], before)
            if not self._counts_rollbacks or self._now().generation > generation:
                return
            self.load()

    def kill_driver(self) -> None:
        """Kills the driver, with which all processes of the job end, and resumes the job."""
        self._driver.kill()
        self.injected += 1
        self._driver.lines()
        self._driver.close()
        wait_until_gone(self._processes.values(), GONE_WITHIN_S)
        self._status = None
        self._driver = RunDriver(msgspec.structs.replace(self._spec, resume=True), self.folder, {})
        self.wait_until_whole()

    def outage(self, outage: Callable[[], object]) -> None:
        """Calls a function that disturbs the external system or the network and ends that, while the load goes on.

        Raises: JobEnded: the job has ended meanwhile.
        """
        with ThreadPoolExecutor(1, "outage") as threads:
            ending = threads.submit(outage)
            while not ending.done():
                self._look()
            ending.result()
        self.injected += 1
        if self._ended is not None:
            raise JobEnded(self._ended)

    def _kill(self, pids: list[int], before: dict[str, int]) -> None:
        """Kills processes, and waits until the tasks with these incarnations have successors."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.injected += 1
        self.wait_for(
            lambda status: all(task.incarnation > before.get(task.name, 0) for task in status.tasks),
            "the successors of killed tasks",
        )
        self.wait_until_whole()

    # ------------------------------------------------------------------ reports of the driver

    def _now(self) -> Status:
        assert self._status is not None, "nothing is injected before the job runs"
        return self._status

    def _taken(self, status: Status) -> int:
        return sum(task.counters.get("records_in", 0) for task in status.tasks if TESTED in task.name)

    def _look(self) -> None:
        wait_readable(self._driver.fileno(), LOOK_EVERY_S)
        for line in self._driver.lines():
            self._take(line)
        if self._driver.is_at_end and self._ended is None:
            self._ended = f"its driver has ended without a report: {self._driver.last()}"
        admitted = int((time.monotonic() - self._opened_s) * PER_SECOND)
        if self._gate.records < self.goal:
            self._opened_s += admitted / PER_SECOND
            self._gate.open_to(min(self.goal, self._gate.records + admitted))

    def _take(self, line: dict[str, Any]) -> None:
        if "end" in line:
            self._ended = line["end"]["failure"]
        elif "status" in line:
            self._status = status_of(line)
            self._with_keepers = set(line["with_keepers"])
            self.alarms += [alarm["text"] for alarm in line["alarms"]]
            for slot in self._status.slots:
                if slot.slot not in self._processes:
                    self._processes[slot.slot] = process_of(slot.pid)

    def _shown(self) -> str:
        if self._status is None:
            return "the job has not begun"
        tasks = ", ".join(
            f"{task.name} {task.phase} {task.counters.get('records_in', 0)}" for task in self._status.tasks
        )
        return f"checkpoint {self._status.checkpoint}; {tasks}; alarms: {self.alarms[-3:]}"

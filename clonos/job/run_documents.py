"""Documents of a job that ``clonos run`` or ``Job.run`` runs, as those of a server's API, but without its libraries."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from typing import Any, Final

from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.progress import TaskCounter
from clonos.io.system.wall_clock import time_text, wall_ns
from clonos.job.handle import Handle
from clonos.job.job_status import STATUS_OF_ENDING, JobStatus, status_now
from clonos.job.last_lines import ANSWER_LINES_MAX, LastLines
from clonos.job.results import error_of
from clonos.job.skew import hot_tasks, hot_tasks_of_run
from clonos.status import Rate, Status, TaskState
from clonos_standby.driver.printed_lines import PRINTED_LINES

RECOVERIES_MAX: Final = 20
RATES_OVER_S: Final = 0.5
MICROSECONDS_PER_S: Final = 1e6
RATED: Final = (TaskCounter.RECORDS_IN, TaskCounter.RECORDS_OUT, TaskCounter.BUSY_US)


class RunLog(LastLines[dict[str, Any]]):
    """Handler that keeps the last lines of a run. ``printer``: prints those too that are not printed anyway."""

    def __init__(self, printer: logging.Handler | None = None) -> None:
        super().__init__()
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one line."""
        super().emit(record)
        if self._printer is not None and record.levelno >= self._printer.level and record.name != PRINTED_LINES.name:
            self._printer.handle(record)

    def line(self, number: int, record: logging.LogRecord, text: str, task: str | None) -> dict[str, Any]:
        """Makes a line of a record."""
        return {
            "number": number,
            "at": time_text(int(record.created * 1e9)),
            "level": record.levelname,
            "logger": record.name,
            "text": text,
            "task": task,
        }

    def document(self, after: int = 0, limit: int = ANSWER_LINES_MAX) -> dict[str, Any]:
        """Returns up to ``limit`` lines after line ``after``, oldest first, and the number that continues."""
        lines = self.lines_after(after, limit)
        return {"lines": lines, "next": lines[-1]["number"] if lines else after}


class RunDocuments:
    """Documents of one running job."""

    def __init__(self, handle: Handle) -> None:
        self._handle, self._began_ns = handle, wall_ns()
        self.is_cancelling = False

    def summary(self, status: Status, error: str | None = None) -> dict[str, Any]:
        """Returns the summary of the job. ``error``: by which its run has ended, for whatever reason."""
        end = self._handle.end()
        if end is not None and error is None and not isinstance(end, JobDone):
            error = str(error_of(status.job, end))
        return {
            "id": self._handle.job_id,
            "name": status.job,
            "status": (JobStatus.FAILED if error is not None else self._status(status)).value,
            "started_at": time_text(self._began_ns),
            "ended_at": None if end is None and error is None else time_text(wall_ns()),
            "recoveries": len(status.recoveries),
            "restarts": 0,
            "checkpoint": status.checkpoint,
            "error": error,
            "stopped": self._handle.is_stopping and not self.is_cancelling,
        }

    def _status(self, status: Status) -> JobStatus:
        end = self._handle.end()
        return STATUS_OF_ENDING[end.ending] if isinstance(end, JobDone) else status_now(status, self.is_cancelling)

    def status(self, error: str | None = None, rates_over_s: float = RATES_OVER_S) -> dict[str, Any]:
        """Returns the state of the job now, with the rates of the next half second."""
        rates: dict[tuple[str, str], Rate] = {}
        before = self._handle.status()
        _count(rates, before)
        if rates_over_s and self._handle.end() is None:
            time.sleep(rates_over_s)
        status = self._handle.status()
        _count(rates, status)
        hosts = {slot.slot: slot.host for slot in status.slots}
        return {
            "job": self.summary(status, error),
            "at": time_text(wall_ns()),
            "tasks": [_task(task, rates, hosts.get(task.slot, "")) for task in status.tasks],
            "recoveries": [
                {
                    "task": recovery.task,
                    "cause": recovery.cause,
                    "phases": [
                        {"name": name, "offset_ms": (at_ns - min(recovery.reached.values())) / 1e6}
                        for name, at_ns in recovery.reached.items()
                    ],
                    "duration_ms": None if recovery.duration_ns is None else recovery.duration_ns / 1e6,
                    "is_over": recovery.is_over,
                }
                for recovery in reversed(status.recoveries[-RECOVERIES_MAX:])
            ],
            "alarms": [{"text": text, "advice": ""} for text in status.alarms],
            "savepoints": [{"path": each.path, "text": each.text} for each in status.savepoints],
            "skew": self._skew(status, rates, rates_over_s),
            "scaling": [asdict(each) for each in status.scaling],
            "rescale": None if status.rescale is None else asdict(status.rescale),
            "totals": dict(status.totals),
        }

    def _skew(self, status: Status, rates: dict[tuple[str, str], Rate], rates_over_s: float) -> list[str]:
        """Returns a sentence for each hot task: of the rates, or of the whole run if there are none."""
        keyed = self._handle.keyed_steps()
        if not rates_over_s:
            return hot_tasks_of_run(status, keyed, (wall_ns() - self._began_ns) / 1e9)
        return hot_tasks(
            status.tasks,
            keyed,
            lambda task: rates[task.name, TaskCounter.RECORDS_IN].per_second(),
            lambda task: rates[task.name, TaskCounter.BUSY_US].per_second() / MICROSECONDS_PER_S,
        )


def _count(rates: dict[tuple[str, str], Rate], status: Status) -> None:
    now_s = time.monotonic()
    for task in status.tasks:
        for counter in RATED:
            rate = rates.setdefault((task.name, counter), Rate())
            rate.add(task.incarnation, task.counters.get(counter), now_s)


def _task(task: TaskState, rates: dict[tuple[str, str], Rate], host: str) -> dict[str, Any]:
    read, sent, busy = (rates[task.name, counter].per_second() for counter in RATED)
    return {
        "name": task.name,
        "phase": task.phase.value,
        "pid": task.pid,
        "host": host,
        "domain": task.domain,
        "incarnation": task.incarnation,
        "standbys": task.standbys,
        "keepers": task.keepers,
        "counters": dict(task.counters),
        "rates": {
            "records_in_per_s": round(read, 1),
            "records_out_per_s": round(sent, 1),
            "busy_ratio": round(min(1.0, busy / MICROSECONDS_PER_S), 3),
        },
    }

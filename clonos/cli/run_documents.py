"""Documents of a job that ``clonos run`` runs, as those of a server's API, but without its libraries."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from typing import Any, Final

from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.progress import SETTLED_PHASES, TaskCounter
from clonos.io.system.wall_clock import utc_datetime, wall_ns
from clonos.job.handle import Handle
from clonos.job.results import error_of
from clonos.server.job_status import JobStatus
from clonos.status import Phase, Rate, Status, TaskState

LINES_MAX: Final = 5_000
ANSWER_LINES_MAX: Final = 1_000
RECOVERIES_MAX: Final = 20
RATES_OVER_S: Final = 0.5
MICROSECONDS_PER_S: Final = 1e6
RATED: Final = (TaskCounter.RECORDS_IN, TaskCounter.RECORDS_OUT, TaskCounter.BUSY_US)
FINAL: Final = {
    Ending.FINISHED: JobStatus.FINISHED,
    Ending.DRAINED: JobStatus.FINISHED,
    Ending.ABORTED: JobStatus.CANCELED,
}
_OF_TASK: Final = re.compile(r"\[?([A-Za-z0-9_.+-]+/\d+)(?:\]|:) ")


def time_text(at_ns: int) -> str:
    """Returns an instant (ns since the Unix epoch) as ISO 8601 in UTC with milliseconds."""
    return utc_datetime(at_ns).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunLog(logging.Handler):
    """Handler that keeps the last lines of a run."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES_MAX)
        self._number = 0
        self._lines_lock = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one line."""
        text = str(getattr(record, "line", "") or record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        writer = _OF_TASK.match(text)
        line = {
            "at": time_text(int(record.created * 1e9)),
            "level": record.levelname,
            "logger": record.name,
            "text": text,
            "task": getattr(record, "task", None) or (writer[1] if writer else None),
        }
        with self._lines_lock:
            self._number += 1
            self._lines.append({"number": self._number, **line})

    def document(self, after: int = 0, limit: int = ANSWER_LINES_MAX) -> dict[str, Any]:
        """Returns up to ``limit`` lines after line ``after``, oldest first, and the number that continues."""
        with self._lines_lock:
            lines = [line for line in self._lines if line["number"] > after][:limit]
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
            "stopped": self._handle.is_stopping,
        }

    def _status(self, status: Status) -> JobStatus:
        end = self._handle.end()
        if isinstance(end, JobDone):
            return FINAL[end.ending]
        if self.is_cancelling:
            return JobStatus.CANCELLING
        if status.phase is Phase.STARTING:
            return JobStatus.CREATED
        is_settled = all(task.phase in SETTLED_PHASES for task in status.tasks)
        is_recovering = not is_settled and any(not recovery.is_over for recovery in status.recoveries)
        return JobStatus.RECOVERING if is_recovering else JobStatus.RUNNING

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
            "totals": dict(status.totals),
        }


def _count(rates: dict[tuple[str, str], Rate], status: Status) -> None:
    now_s = time.monotonic()
    for task in status.tasks:
        for counter in RATED:
            rate = rates.setdefault((task.name, counter), Rate())
            rate.add(task.incarnation, task.counters.get(counter, 0), now_s)


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

"""Watch over a job: a thread that samples its counters each second, and what is new for the readers of events.

The documents are made of the state of the moment; only rates and curves are those of the last sample.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from clonos.connectors.secrets import masked
from clonos.core.coordinator.coordinator_effects import Alarm, RecoveryEvent
from clonos.io.store.object_files import StoreFailed
from clonos.io.system.wall_clock import time_text, wall_ns
from clonos.job.job_status import JobStatus, status_now
from clonos.job.prometheus.collector import JobCollector
from clonos.job.run_history.history_lines import HistoryLine
from clonos.server.job_api.advice import advice_for
from clonos.server.job_api.documents import (
    ENDED_STATUSES,
    AlarmDocument,
    CheckpointDocument,
    CheckpointList,
    HistoryDocument,
    HistoryLineDocument,
    JobSummary,
    RecoveryDocument,
    RecoveryPhase,
    RescaleDocument,
    SavepointDocument,
    ScalingDocument,
    SeriesDocument,
    SlotDocument,
    StatusDocument,
    UserMetricDocument,
    slot_text,
)
from clonos.server.job_api.job_rates import JobRates
from clonos.server.job_api.job_source import JobSource
from clonos.server.job_api.log_ring import LogRing
from clonos.status import (
    CheckpointState,
    MetricValue,
    RecoveryState,
    SavepointProgress,
    SlotState,
    Status,
    metric_values,
)
from clonos_standby.driver.driver import Progress

logger = logging.getLogger("clonos.run")

SAMPLE_EVERY_S: Final = 1.0
SERIES_POINTS_MAX: Final = 3_600
ALARMS_MAX: Final = 100
RECOVERIES_SHOWN_MAX: Final = 20
RECOVERIES_MAX: Final = 200
HISTORY_LINES_MAX: Final = 2_000
NANOSECONDS_PER_MS: Final = 1_000_000


@dataclass(slots=True)
class EventsSeen:
    """Position of a reader of events: the numbers of what it has seen."""

    sample: int = 0
    recovery: int = 0
    alarm: int = 0
    log: int = 0


class JobWatch:
    """Watch over one job. ``start`` begins to sample; ``close`` ends it."""

    def __init__(self, source: JobSource, logs: LogRing) -> None:
        self.source = source
        self.logs = logs
        self.plan = source.plan()
        self.rates = JobRates(self.plan)
        self.metrics = JobCollector(source.status, source.checkpoints)
        self.samples = 0
        self.recovery_events = 0
        self._alarms: deque[AlarmDocument] = deque(maxlen=ALARMS_MAX)
        self._alarm_number = 0
        self._series: dict[str, deque[tuple[int, float]]] = {}
        self._ended_ns: int | None = None
        self._recoveries = RecoveryNumbers()
        self._wakers: list[Callable[[], None]] = []
        self._latest: tuple[tuple[int, bool, bool], str, bool] | None = None  # what it was made after, and what it is
        self._latest_lock = threading.Lock()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._sample_on, name="job sampler", daemon=True)
        source.listen(self._on_progress)
        logs.notify = self.wake

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and wakes up all readers of events, which end then."""
        self._is_closed.set()
        self._thread.join()
        self.logs.notify = lambda: None
        self.wake()

    @property
    def is_closed(self) -> bool:
        """Whether nothing new will come."""
        return self._is_closed.is_set()

    # ------------------------------------------------------------------ what is new

    def add_waker(self, waker: Callable[[], None]) -> None:
        """Calls ``waker`` when something is new, in any thread; it must neither wait nor raise."""
        self._wakers.append(waker)

    def remove_waker(self, waker: Callable[[], None]) -> None:
        """Calls it no more."""
        self._wakers.remove(waker)

    def wake(self) -> None:
        """Wakes up the readers of events."""
        for waker in tuple(self._wakers):
            waker()

    def _on_progress(self, progress: Progress) -> None:
        """Notes an alarm or a milestone; runs in the coordinator's thread."""
        if isinstance(progress, Alarm):
            if progress.is_routine:
                return
            fields = " ".join(f"{name}={value}" for name, value in progress.fields)
            self._alarm_number += 1
            text = f"{progress.text} {fields}".rstrip()
            self._alarms.append(
                AlarmDocument(
                    number=self._alarm_number, text=text, at=time_text(wall_ns()), advice=advice_for(progress.text)
                )
            )
        elif isinstance(progress, RecoveryEvent):
            self.recovery_events += 1
        self.wake()

    def alarms_after(self, number: int) -> list[AlarmDocument]:
        """Returns the alarms after alarm ``number``, oldest first."""
        return [alarm for alarm in tuple(self._alarms) if alarm.number > number]

    # ------------------------------------------------------------------ samples

    def _sample_on(self) -> None:
        due_s = time.monotonic()
        while True:
            self.sample()
            due_s = max(due_s + SAMPLE_EVERY_S, time.monotonic())
            if self._is_closed.wait(due_s - time.monotonic()):
                return

    def sample(self) -> None:
        """Reads the counters once."""
        status = self.metrics.sample()
        now_ms = wall_ns() // NANOSECONDS_PER_MS
        self.rates.add(status, time.monotonic())
        for name, value in self.rates.totals(status).items():
            self._series.setdefault(name, deque(maxlen=SERIES_POINTS_MAX)).append((now_ms, value))
        self.samples += 1
        self.wake()

    def series(self, since_ms: int = 0) -> SeriesDocument:
        """Returns the points of the curves after an instant, and the metrics of user code."""
        series = {name: _points_after(points, since_ms) for name, points in tuple(self._series.items())}
        return SeriesDocument(series=series, user=list(map(_user_metric, metric_values(self.source.status().tasks))))

    # ------------------------------------------------------------------ documents

    def summary_now(self) -> JobSummary:
        """Returns the summary of the job now."""
        return self.summary(self.source.status())

    def latest(self) -> tuple[str, bool]:
        """Returns the state of the job as JSON, made once after each sample for all readers of events, and whether it
        changes no more."""
        with self._latest_lock:
            key = self.samples, self.has_ended, self.is_closed
            if self._latest is None or self._latest[0] != key:
                document = self.document()
                self._latest = key, document.model_dump_json(), is_final(document.job)
            return self._latest[1:]

    def summary(self, status: Status) -> JobSummary:
        """Returns the summary of the job."""
        ended = self.source.ended()
        if ended is not None and self._ended_ns is None:
            self._ended_ns = wall_ns()
        found = self._job_status(status, None if ended is None else ended[0])
        return JobSummary(
            id=self.source.job_id,
            name=self.source.name,
            status=found,
            started_at=time_text(self.source.started_ns),
            ended_at=None if self._ended_ns is None else time_text(self._ended_ns),
            recoveries=self._recoveries.count(status),
            checkpoint=status.checkpoint,
            generation=status.generation,
            error=None if ended is None else ended[1],
            stopped=self.source.is_stopping(),
        )

    def _job_status(self, status: Status, final: JobStatus | None) -> JobStatus:
        if final is not None:
            return JobStatus.FAILING if final is JobStatus.FAILED and not self.source.is_over() else final
        return status_now(status, self.source.is_cancelling())

    def document(self) -> StatusDocument:
        """Returns the state of the job now."""
        status = self.source.status()
        return StatusDocument(
            job=self.summary(status),
            at=time_text(wall_ns()),
            tasks=self.rates.tasks(status),
            slots=list(map(_slot, status.slots)),
            edges=self.rates.edges(status),
            recoveries=self._recoveries.documents(status, RECOVERIES_SHOWN_MAX),
            savepoints=list(map(_savepoint, status.savepoints)),
            skew=self.rates.skew(status),
            rescale=None if status.rescale is None else RescaleDocument(**asdict(status.rescale)),
            scaling=[ScalingDocument(**asdict(each)) for each in status.scaling],
            alarms=list(self._alarms),
            totals=dict(status.totals),
            injection_allowed=self.source.allows_injection,
            savepoints_supported=self.source.has_savepoints,
        )

    def recoveries(self) -> list[RecoveryDocument]:
        """Returns the last recoveries, newest first."""
        return self._recoveries.documents(self.source.status(), RECOVERIES_MAX)

    def checkpoints(self) -> CheckpointList:
        """Returns the last checkpoints, newest first."""
        return CheckpointList(checkpoints=[_checkpoint(found) for found in reversed(self.source.checkpoints())])

    def history(self) -> HistoryDocument:
        """Returns the last lines of the history, oldest first; none while the store fails."""
        try:
            lines = self.source.history()
        except StoreFailed as error:
            logger.warning("the history cannot be read: %s", error)
            lines = []
        return HistoryDocument(lines=list(map(_history_line, lines[-HISTORY_LINES_MAX:])))

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.source.ended() is not None


def _points_after(points: deque[tuple[int, float]], since_ms: int) -> list[tuple[int, float]]:
    found = list(points)
    return found[bisect_right(found, since_ms, key=lambda point: point[0]) :]


def is_final(summary: JobSummary) -> bool:
    """Returns whether the status of a job changes no more."""
    return summary.status in ENDED_STATUSES


class RecoveryNumbers:
    """Numbers of recoveries in the order in which they began. The status lists those in progress last."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int, int], int] = {}
        self._next = 1
        self._lock = threading.Lock()

    def documents(self, status: Status, count: int) -> list[RecoveryDocument]:
        """Returns the last recoveries, newest first."""
        numbered = self._numbered(status)[-count:]
        return [_recovery(number, recovery) for number, recovery in reversed(numbered)]

    def count(self, status: Status) -> int:
        """Returns how many recoveries have begun, with those that the status has no more."""
        self._numbered(status)
        return self._next - 1

    def _numbered(self, status: Status) -> list[tuple[int, RecoveryState]]:
        """Returns the recoveries with their numbers, in the order in which they began."""
        with self._lock:
            began = sorted(status.recoveries, key=_began_ns)
            known = {}
            for recovery in began:
                identity = (recovery.task, recovery.failed_incarnation, _began_ns(recovery))
                number = self._numbers.get(identity, self._next)
                self._next += number == self._next
                known[identity] = number
            self._numbers = known
            return list(zip(known.values(), began, strict=True))


def _began_ns(recovery: RecoveryState) -> int:
    return min(recovery.reached.values(), default=0)


def _recovery(number: int, recovery: RecoveryState) -> RecoveryDocument:
    began_ns = _began_ns(recovery)
    return RecoveryDocument(
        number=number,
        task=recovery.task,
        failed_incarnation=recovery.failed_incarnation,
        incarnation=recovery.incarnation,
        cause=recovery.cause,
        phases=[
            RecoveryPhase(name=name, at=time_text(at_ns), offset_ms=(at_ns - began_ns) / NANOSECONDS_PER_MS)
            for name, at_ns in recovery.reached.items()
        ],
        duration_ms=None if recovery.duration_ns is None else recovery.duration_ns / NANOSECONDS_PER_MS,
        replayed_records=recovery.replayed_records,
        replayed_calls=recovery.replayed_calls,
        executed_calls=recovery.executed_calls,
        is_over=recovery.is_over,
    )


def _slot(found: SlotState) -> SlotDocument:
    return SlotDocument(
        slot=slot_text(found.slot),
        pid=found.pid,
        host=found.host,
        domain=found.domain,
        cpu_s=round(found.cpu_s, 3),
        memory_bytes=found.memory_bytes,
    )


def _savepoint(found: SavepointProgress) -> SavepointDocument:
    return SavepointDocument(
        path=masked(found.path),
        objects_done=found.objects_done,
        objects_total=found.objects_total,
        left_s=None if found.left_s is None else round(found.left_s, 1),
        text=masked(found.text),
    )


def _user_metric(found: MetricValue) -> UserMetricDocument:
    return UserMetricDocument(
        name=found.name,
        kind=found.kind.value,
        task=found.task,
        labels=dict(found.labels),
        value=found.value,
        count=found.count,
        sum=found.sum,
        buckets=None if found.buckets is None else {str(bound): count for bound, count in found.buckets.items()},
    )


def _history_line(line: HistoryLine) -> HistoryLineDocument:
    return HistoryLineDocument(
        at=time_text(line.at_ns),
        began_at=None if line.began_ns is None else time_text(line.began_ns),
        event=line.kind,
        task=line.task,
        job_id=line.job_id,
        term=line.term,
        text=line.text,
    )


def _checkpoint(found: CheckpointState) -> CheckpointDocument:
    done = found.completed_ns
    return CheckpointDocument(
        number=found.number,
        begun_at=time_text(found.begun_ns),
        completed_at=None if done is None else time_text(done),
        duration_ms=None if done is None else (done - found.begun_ns) / NANOSECONDS_PER_MS,
        bytes=found.size_bytes,
        status="completed" if done is not None else "pending" if found.is_pending else "abandoned",
    )

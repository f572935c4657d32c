"""One job under supervision: its driver, the observed status, and requests of users that its driver must carry out.

Only the supervisor's thread calls the methods, except where they say otherwise. Requests to a driver run in the
background and come back as calls of ``_on_...``. Every step can be repeated: a step that fails because the register
does not answer is tried again at the next tick.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clonos.core.model.errors import Blame, EnvironmentFault
from clonos.io.process.retained_slots import RetainedSlots
from clonos.io.system.wall_clock import wall_ns
from clonos.job.continuing.restart_strategy import FAILURES_REMEMBERED, RestartStrategy
from clonos.job.job_status import JobStatus
from clonos.server.register.job_record import Intention, JobRecord
from clonos.server.register.register import JobRegister
from clonos.server.register.transitions import JobEvent, next_status
from clonos.server.supervision.driver_link import DriverLink, DriverRefused, DriverSilent
from clonos.server.supervision.driver_main import ANOTHER_DRIVER
from clonos.server.supervision.driver_process import RunningDriver
from clonos.server.supervision.job_folder import REPORTED_DOCUMENTS, DriverEnd, JobFolder

logger = logging.getLogger("clonos.server")

POLL_EVERY_S: Final = 0.5
KEEP_EVERY_S: Final = 10.0
"""Seconds between two writes of a running job's documents into the register."""
CANCEL_KILL_AFTER_S: Final = 30.0
"""Seconds that a driver has to carry out a cancellation before it is killed."""
PAUSE_S: Final = 1.0
"""Seconds until a driver that was ended by a signal is started again."""

EVENT_OF_REPORT: Final = {
    JobStatus.RUNNING: JobEvent.RUNS,
    JobStatus.RECOVERING: JobEvent.RECOVERS,
    JobStatus.FAILING: JobEvent.FAILS,
}
"""Events by the status that a driver reports; a driver that starts or ends reports nothing that counts."""

Background = Callable[[Callable[[], Callable[[], None] | None]], None]
"""Runs a function in another thread, and what it returns in the supervisor's thread."""


class SupervisedJob:
    """One job that has not ended for good. ``spawn``: starts a driver of a folder with a number. ``link``: to the
    driver; None for that of the folder."""

    def __init__(
        self,
        record: JobRecord,
        folder: JobFolder,
        register: JobRegister,
        strategy: RestartStrategy,
        background: Background,
        spawn: Callable[[JobFolder, int], RunningDriver],
        link: DriverLink | None = None,
    ) -> None:
        self.record, self.folder = record, folder
        self.driver: RunningDriver | None = None
        self.summary: dict[str, Any] | None = None  # latest report of the living driver; read by any thread
        self._register, self._strategy, self._background = register, strategy, background
        self._spawn, self._link = spawn, link or DriverLink(folder)
        self._is_over = False  # the driver has ended, and this may not be in the register yet
        self._start_due_s: float | None = None
        self._poll_due_s = self._keep_due_s = 0.0
        self._is_polling = self._is_keeping = False
        self._delivered = ""  # the verb that the living driver has accepted
        self._kill_due_s: float | None = None
        self._written_checkpoint = record.checkpoint
        self._failed_s: deque[float] = deque(maxlen=FAILURES_REMEMBERED)  # since this server has begun
        self._first_checkpoint: int | None = None  # that the living driver reported

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended for good."""
        return self.record.status.is_final

    @property
    def descriptor(self) -> int | None:
        """Descriptor of a living driver's process, readable when it ends."""
        return None if self.driver is None or self._is_over else self.driver.pidfd

    def reload(self) -> None:
        """Reads the record again: a user has asked for something. Raises: RegisterFailed."""
        self.record = self._register.job(self.record.id)

    def tick(self, now_s: float) -> None:
        """Does what is due. Raises: RegisterFailed: it is done at the next tick."""
        if self.has_ended:
            return
        if self.driver is None:
            self._tick_without_driver(now_s)
        elif self._is_over or self.driver.has_ended():
            self._is_over = True
            self._settle(now_s, self.driver)
        else:
            self._tick_with_driver(now_s)

    # ------------------------------------------------------------------ without a driver

    def _tick_without_driver(self, now_s: float) -> None:
        if self._start_due_s is None:
            self._look(now_s)
            return
        if self.record.intention is not None and self.record.intention.verb == "cancel":
            self._end(Verdict(JobEvent.ABORTED))
        elif now_s >= self._start_due_s:
            self._start(now_s)

    def _look(self, now_s: float) -> None:
        """Finds out what became of the driver of an earlier server."""
        if not self.folder.path.is_dir():
            self._end(Verdict(JobEvent.FAILED, f"the folder of the job, {self.folder.path}, is missing."))
        elif self.folder.has_driver():
            identity = self.folder.read_driver()
            found = None if identity is None else RunningDriver.adopt(identity)
            if found is not None:  # else it is just starting or ending: the next look knows
                logger.warning("job %s: driver %d is adopted", self.record.id, found.identity.pid)
                self._take(found)
        elif self.record.attempt == 0:
            self._start(now_s)
        else:
            verdict = judge(self.folder.read_end(), self.record.intention, "the driver ended while no server ran.")
            self._decide(now_s, verdict)
            if self._start_due_s is not None:
                self._start_due_s = now_s

    def _start(self, now_s: float) -> None:
        """Starts a driver. Its number is in the register before."""
        attempt = self.record.attempt + 1
        self.record = self._register.change(self.record.id, attempt=attempt, driver=None)
        self.folder.clear_end()
        self._take(self._spawn(self.folder, attempt))
        self._poll_due_s = now_s

    def _take(self, driver: RunningDriver) -> None:
        self.driver, self._is_over = driver, False
        self.summary, self._start_due_s, self._first_checkpoint, self._delivered = None, None, None, ""
        self.record = self._register.change(self.record.id, driver=driver.identity)

    # ------------------------------------------------------------------ with a driver

    def _tick_with_driver(self, now_s: float) -> None:
        intention = self.record.intention
        if intention is not None and intention.verb == "cancel":
            if self._kill_due_s is None:
                self._kill_due_s = now_s + CANCEL_KILL_AFTER_S
            elif now_s >= self._kill_due_s and self.driver is not None:
                logger.warning("job %s: its driver has not ended in time after cancel and is killed", self.record.id)
                self.driver.kill()
        if now_s >= self._poll_due_s and not self._is_polling:
            self._poll_due_s, self._is_polling = now_s + POLL_EVERY_S, True
            attempt = self.record.attempt
            self._background(lambda: self._poll(attempt))
        if now_s >= self._keep_due_s and not self._is_keeping and self.summary is not None:
            self._keep_due_s, self._is_keeping = now_s + KEEP_EVERY_S, True
            driver_job = str(self.summary["id"])
            self._background(lambda: self._keep(driver_job))

    def _poll(self, attempt: int) -> Callable[[], None]:
        """Asks the driver for its report; in the background."""
        try:
            summary = self._link.summary()
        except (DriverSilent, DriverRefused, LookupError, ValueError):
            return lambda: self._on_report(attempt, None)
        return lambda: self._on_report(attempt, summary)

    def _on_report(self, attempt: int, summary: dict[str, Any] | None) -> None:
        self._is_polling = False
        if summary is None or self.driver is None or attempt != self.record.attempt or self.has_ended:
            return
        is_first = self.summary is None
        self.summary = summary
        self._observe(summary)
        if is_first:
            self._keep_due_s = 0.0
        intention = self.record.intention
        if intention is not None and self._delivered != intention.verb:
            self._background(lambda: self._deliver(attempt, str(summary["id"])))

    def _observe(self, summary: dict[str, Any]) -> None:
        """Brings the record up to date with a report; the checkpoint only from time to time, to spare the disk."""
        checkpoint = int(summary["checkpoint"])
        if self._first_checkpoint is None:
            self._first_checkpoint = checkpoint
        changes: dict[str, object] = {"checkpoint": checkpoint, "generation": int(summary["generation"])}
        if self.record.failures and checkpoint > self._first_checkpoint:
            changes |= {"failures": 0, "error": None}
            self.record = self._register.change(self.record.id, **changes)
        event = EVENT_OF_REPORT.get(JobStatus(summary["status"]))
        if event is not None and next_status(self.record.status, event) is not self.record.status:
            if self.record.started_at_ms is None:
                changes["started_at_ms"] = wall_ns() // 1_000_000
            if event is JobEvent.RUNS:
                changes["error"] = None  # of the driver before: the log has it
            self.record = self._register.apply(self.record.id, event, **changes)

    def _keep(self, driver_job: str) -> Callable[[], None]:
        """Writes the documents of a running job into the register; in the background."""
        try:
            for name in REPORTED_DOCUMENTS:
                self._register.keep(self.record.id, name, self._link.document(driver_job, name))
        except EnvironmentFault as error:  # of the driver or of the register: the next time is soon
            logger.debug("job %s: its documents were not kept: %s", self.record.id, error)
        return self._on_stored

    def _on_stored(self) -> None:
        self._is_keeping = False
        if self.summary is not None and self.summary["checkpoint"] != self._written_checkpoint and not self.has_ended:
            self._written_checkpoint = self.summary["checkpoint"]
            self.record = self._register.change(self.record.id, checkpoint=int(self._written_checkpoint))

    def _deliver(self, attempt: int, driver_job: str) -> Callable[[], None] | None:
        """Asks the driver for what a user has asked for; in the background."""
        intention = self.record.intention
        assert intention is not None, "there is something to deliver"
        body = {"savepoint": intention.savepoint, "drain": intention.drain} if intention.verb == "stop" else {}
        try:
            self._link.post(driver_job, intention.verb, body)
        except DriverSilent:
            return None  # asked again after the next report
        except DriverRefused as error:
            logger.warning("job %s: %s", self.record.id, error)
            return None
        return lambda: self._on_delivered(attempt, intention.verb)

    def _on_delivered(self, attempt: int, verb: str) -> None:
        if attempt == self.record.attempt:
            self._delivered = verb

    # ------------------------------------------------------------------ the end of a driver

    def _settle(self, now_s: float, driver: RunningDriver) -> None:
        if driver.exit_code == ANOTHER_DRIVER:  # that of a server that was killed before it had written of it
            self._drop()
            return
        code = driver.exit_code
        how = "the driver was lost" + (
            f" (signal {-code})." if code is not None and code < 0 else f" (exit code {code})."
        )
        if code is None:
            how = "the driver was lost."
        self._decide(now_s, judge(self.folder.read_end(), self.record.intention, how))

    def _decide(self, now_s: float, verdict: Verdict) -> None:
        """Writes the verdict over a driver into the register, and plans the next start."""
        last = self.folder.read_last()
        for name, document in last.items():
            self._register.keep(self.record.id, name, document)
        recoveries = self.record.recoveries + self._recoveries_of_driver(last)
        if verdict.event is not JobEvent.DRIVER_LOST:
            self._end(verdict, recoveries)
            return
        failures = self.record.failures + verdict.is_failure
        if verdict.is_failure:
            self._failed_s.append(now_s)
        delay_s = self._strategy.delay_s(failures, tuple(self._failed_s)) if verdict.is_failure else PAUSE_S
        if delay_s is None:
            reason = (
                f"{verdict.error or 'its driver was lost.'} This was loss {failures} without a completed checkpoint"
            )
            self._end(
                Verdict(JobEvent.FAILED, f"{reason} in between, and the restart strategy allows no more."), recoveries
            )
            return
        logger.warning(
            "job %s: %s It is restarted.", self.record.id, verdict.error or "its driver was ended by a signal."
        )
        self.record = self._register.apply(
            self.record.id,
            JobEvent.DRIVER_LOST,
            failures=failures,
            recoveries=recoveries,
            error=verdict.error,
            driver=None,
        )
        self._drop()
        self._start_due_s = now_s + delay_s

    def _recoveries_of_driver(self, last: dict[str, bytes]) -> int:
        """Returns how many recoveries the driver that has ended had, as it last reported."""
        if "status" in last:
            return int(msgspec.json.decode(last["status"])["job"]["recoveries"])
        return 0 if self.summary is None else int(self.summary["recoveries"])

    def _end(self, verdict: Verdict, recoveries: int | None = None) -> None:
        RetainedSlots(self.folder.slots).end_if_any()  # those of a driver that was killed wait for the next one
        end = self.folder.read_end()
        checkpoint = max(self.record.checkpoint, 0 if end is None else end.checkpoint)
        self.record = self._register.apply(
            self.record.id,
            verdict.event,
            error=verdict.error,
            stopped=verdict.stopped,
            checkpoint=checkpoint,
            recoveries=self.record.recoveries if recoveries is None else recoveries,
            ended_at_ms=wall_ns() // 1_000_000,
            driver=None,
        )
        logger.warning(
            "job %s: %s%s", self.record.id, self.record.status, f": {verdict.error}" if verdict.error else ""
        )
        self._drop()

    def _drop(self) -> None:
        driver, self.driver = self.driver, None
        self.summary, self._start_due_s, self._kill_due_s, self._delivered = None, None, None, ""
        if driver is not None:
            driver.close()

    def close(self) -> None:
        """Lets go of the driver, which goes on."""
        self._drop()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Event of the job that the end of its driver means.

    ``is_failure``: it counts for the restart strategy. ``stopped``: ended with a final checkpoint, as a user asked.
    """

    event: JobEvent
    error: str | None = None
    is_failure: bool = False
    stopped: bool = False


def judge(end: DriverEnd | None, intention: Intention | None, how: str) -> Verdict:
    """Returns the verdict over a driver that has ended. ``end``: None if it was killed; ``how``: the words for that.

    A failure is final when the job or this library is at fault: the next driver would meet it again. The environment
    may have recovered by then. A driver that was ended by a signal has only paused its job.
    """
    cancelled = intention is not None and intention.verb == "cancel"
    if end is None:
        if cancelled:
            return Verdict(JobEvent.ABORTED)
        return Verdict(JobEvent.DRIVER_LOST, how, is_failure=True)
    match end.ending:
        case "finished":
            return Verdict(JobEvent.FINISHED)
        case "failed" if cancelled:
            return Verdict(JobEvent.ABORTED, end.error)
        case "failed" if end.blame == Blame.ENVIRONMENT and not end.is_superseded:
            return Verdict(JobEvent.DRIVER_LOST, end.error, is_failure=True)
        case "failed":
            return Verdict(JobEvent.FAILED, end.error)
        case "drained" if intention is not None and intention.verb == "stop":
            return Verdict(JobEvent.FINISHED, stopped=True)
    if intention is not None and (cancelled or not intention.drain):
        return Verdict(JobEvent.ABORTED)
    return Verdict(JobEvent.DRIVER_LOST)

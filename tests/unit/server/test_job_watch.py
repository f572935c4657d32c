"""What the API makes of the states of a job: numbers of recoveries, rates, the status in the words of the API."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest

from clonos.core.model.progress import TaskPhase
from clonos.job.last_lines import ANSWER_LINES_MAX, LINES_MAX
from clonos.server.job_api.documents import JobStatus, LogLine
from clonos.server.job_api.job_watch import JobWatch, RecoveryNumbers
from clonos.server.job_api.log_ring import LogRing
from clonos.status import Phase, RecoveryState, Status
from tests.processes.page.hostile_source import HostileSource

MS = 1_000_000


def _recovery(task: str, began_ms: int, is_over: bool) -> RecoveryState:
    reached = {"detected": began_ms * MS} | ({"caught_up": (began_ms + 9) * MS} if is_over else {})
    return RecoveryState(task, 1, 2, "", reached)


def test_a_recovery_keeps_its_number_when_a_later_one_ends_before_it() -> None:
    numbers = RecoveryNumbers()
    long, short = _recovery("ask/1", 100, False), _recovery("count/0", 200, False)
    status = Status("job", Phase.RUNNING, recoveries=(long, short))
    assert [(found.number, found.task) for found in numbers.documents(status, 20)] == [(2, "count/0"), (1, "ask/1")]
    status = Status("job", Phase.RUNNING, recoveries=(_recovery("count/0", 200, True), long))
    assert [(found.number, found.task) for found in numbers.documents(status, 20)] == [(2, "count/0"), (1, "ask/1")]
    assert [found.number for found in numbers.documents(status, 1)] == [2]
    assert numbers.count(status) == 2
    assert numbers.count(Status("job", Phase.RUNNING, recoveries=(long,))) == 2, "one is in the status no more"


def test_a_recovery_lasts_until_its_task_is_live_and_not_until_it_has_caught_up() -> None:
    recovery = _recovery("count/0", 100, False)
    assert recovery.duration_ns is None
    reached = {**recovery.reached, "replayed": 140 * MS, "caught_up": 900 * MS}
    (found,) = RecoveryNumbers().documents(
        Status("job", Phase.RUNNING, recoveries=(replace(recovery, reached=reached),)), 20
    )
    assert found.duration_ms == 40


def test_only_points_after_an_instant_are_given() -> None:
    watch = JobWatch(HostileSource(), LogRing())
    watch.sample()
    first = watch.series().series["backlog"]
    assert len(first) == 1
    assert watch.series(first[0][0]).series["backlog"] == []
    assert watch.series(first[0][0] - 1).series["backlog"] == first


class Changing(HostileSource):
    """A job whose status the test changes."""

    now: Status | None = None
    end: tuple[JobStatus, str | None] | None = None
    has_processes = True
    cancels = False

    def status(self) -> Status:
        return self.now or super().status()

    def ended(self) -> tuple[JobStatus, str | None] | None:
        return self.end

    def is_over(self) -> bool:
        return not self.has_processes

    def is_cancelling(self) -> bool:
        return self.cancels


def test_a_job_recovers_while_a_task_is_not_live_and_runs_while_it_catches_up() -> None:
    source = Changing()
    watch = JobWatch(source, LogRing())
    assert watch.document().job.status is JobStatus.RECOVERING
    base = source.status()
    live = tuple(replace(task, phase=TaskPhase.LIVE) for task in base.tasks)
    source.now = replace(base, tasks=live)
    assert watch.document().job.status is JobStatus.RUNNING
    source.now = replace(base, phase=Phase.STARTING)
    assert watch.document().job.status is JobStatus.CREATED


@pytest.mark.parametrize("final", [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED])
def test_a_failed_job_is_failing_until_its_processes_have_ended(final: JobStatus) -> None:
    source = Changing()
    watch = JobWatch(source, LogRing())
    source.cancels = True
    assert watch.document().job.status is JobStatus.CANCELLING
    source.end = (final, "why")
    summary = watch.document().job
    assert summary.status is (JobStatus.FAILING if final is JobStatus.FAILED else final)
    source.has_processes = False
    summary = watch.document().job
    assert (summary.status, summary.error) == (final, "why")
    assert summary.ended_at is not None


def _logged(text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "name": "clonos", "levelname": "WARNING"})


class Interrupted(LogRing):
    """A ring whose first line is being made when a signal handler of the same thread logs another one."""

    def line(self, number: int, record: logging.LogRecord, text: str, task: str | None) -> LogLine:
        if text == "first":
            self.handle(_logged("of the signal"))
        return super().line(number, record, text, task)


def test_a_line_of_a_signal_handler_that_interrupts_another_line_comes_after_it() -> None:
    ring = Interrupted()
    logs = threading.Thread(target=ring.handle, args=(_logged("first"),), daemon=True)
    logs.start()
    logs.join(timeout=30)
    assert not logs.is_alive(), "the thread waits for a lock that it has"
    ring.handle(_logged("third"))
    assert [(line.number, line.text) for line in ring.after(0).lines] == [
        (1, "first"),
        (2, "of the signal"),
        (3, "third"),
    ]


def test_the_log_answers_with_the_lines_after_a_number_in_pieces_and_forgets_old_ones() -> None:
    import logging

    ring = LogRing()
    for number in range(LINES_MAX + 10):
        ring.handle(logging.LogRecord("clonos.job", logging.INFO, "", 0, "ask/0: line %d", (number,), None))
    first = ring.after(0)
    assert [line.number for line in first.lines] == list(range(11, 11 + ANSWER_LINES_MAX))
    assert (first.lines[0].text, first.lines[0].task) == ("ask/0: line 10", "ask/0")
    assert first.next == 10 + ANSWER_LINES_MAX
    last = ring.after(ring.last - 2)
    assert [line.number for line in last.lines] == [ring.last - 1, ring.last]
    assert ring.after(ring.last).lines == []
    assert ring.after(ring.last).next == ring.last

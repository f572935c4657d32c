"""The thread that writes a history: what it writes of what the coordinator knows, and when it writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clonos import files, values
from clonos.api.graph import JobGraph
from clonos.core.checkpoint.plan_shape import shape_of
from clonos.core.coordinator.coordinator_effects import Alarm, Ending, JobDone, JobFailed, Milestone, RecoveryEvent
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId
from clonos.core.model.options import Options
from clonos.io.store.object_files import LocalFiles, StoreFailed
from clonos.job.run_history.history_events import (
    Alarmed,
    CheckpointAbandoned,
    CheckpointDone,
    DriverStarted,
    EpochCaptured,
    Event,
    RolledBack,
    RunEnded,
    TaskCaughtUp,
    TaskFailure,
    TaskMoved,
    TaskRecovered,
    WidthsChanged,
    read_events,
)
from clonos.job.run_history.history_lines import lines_of_history
from clonos.job.run_history.history_writer import ALARMS_A_MINUTE_MAX, HistorySnapshot, HistoryWriter
from clonos.status import CheckpointState, RecoveryState, RescalePhase, RescaleState
from clonos_standby.driver.captures import WrittenRecord

MS = 1_000_000
DETECTED: dict[str, int] = {"detected": 100 * MS, "view": 101 * MS, "gathered": 110 * MS, "replayed": 150 * MS}


class Away(LocalFiles):
    """A folder that cannot be written."""

    def create_if_absent(self, name: str, data: bytes) -> bool:
        raise StoreFailed(self.url, f"create {name}", "it is away")


def _look(**changes: Any) -> HistorySnapshot:
    fields: dict[str, Any] = {
        "has_begun": True,
        "checkpoint": 3,
        "checkpoints": (),
        "recoveries": (),
        "rescale": None,
        "tasks": {},
    }
    return HistorySnapshot(**(fields | changes))


class Scripted:
    """A writer whose coordinator knows what the test sets in ``look``."""

    def __init__(self, store: LocalFiles) -> None:
        graph = JobGraph("scripted")
        graph.source(values([1]), name="read").sink(files.jsonl("out"))
        plan = graph.compile(Options(), parallelism=1).plan
        self.look, self.store = _look(), store
        start = SimpleNamespace(store=SimpleNamespace(files=store, term=2), how="resumed", resumed=None)
        driver = SimpleNamespace(ask=lambda _: self.look)
        launched = SimpleNamespace(driver=driver, image=SimpleNamespace(plan=plan), job_id="s", start=start)
        self.writer = HistoryWriter()
        self.launched: Any = launched

    def begin(self) -> None:
        self.writer.start(self.launched)

    def written(self) -> list[Event]:
        return read_events(self.store)[0]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    found = Scripted(LocalFiles(tmp_path))
    yield found
    found.writer.close(None)


def _recovery(reached: dict[str, int], failed: int = 7, incarnation: int = 8) -> RecoveryState:
    return RecoveryState("count/0", failed, incarnation, "it was ended", reached, replayed_records=5)


def _failure(task: str = "count/0") -> RecoveryEvent:
    return RecoveryEvent(Milestone.DETECTED, 100 * MS, 0, 7, "it was ended", task)


def test_a_job_whose_tasks_never_ran_leaves_nothing_in_its_store(scripted: Scripted, tmp_path: Path) -> None:
    scripted.look = _look(has_begun=False)
    scripted.writer.note(Alarm("a slot was refused"))
    scripted.begin()
    scripted.writer.close(JobFailed(Blame.ENVIRONMENT, "no slot came"))
    assert list(tmp_path.iterdir()) == []


def test_an_alarm_before_the_start_is_written_with_it(scripted: Scripted) -> None:
    scripted.writer.note(Alarm("rows may come again", (("task", "count/0"),)))
    scripted.begin()
    scripted.writer.close(JobDone(Ending.DRAINED, CheckpointId(3)))
    alarm, started, ended = scripted.written()
    assert isinstance(alarm, Alarmed)
    assert alarm.text == "rows may come again task=count/0"
    assert isinstance(started, DriverStarted)
    assert (started.how, started.term, started.tasks) == ("resumed", 2, {"read": 1})
    assert isinstance(ended, RunEnded)
    assert (ended.how, ended.checkpoint) == ("drained", 3)


def test_a_recovery_is_written_once_with_the_phases_that_sum_to_its_duration(scripted: Scripted) -> None:
    scripted.writer.note(_failure())
    scripted.look = _look(recoveries=((_recovery(DETECTED | {"caught_up": 190 * MS}), False),))
    scripted.begin()
    scripted.writer.close(JobDone(Ending.FINISHED, CheckpointId(3)))
    found = {type(event): event for event in scripted.written()}
    assert len(found) == len(scripted.written()) == 5
    recovered, caught_up = found[TaskRecovered], found[TaskCaughtUp]
    assert isinstance(recovered, TaskRecovered)
    assert recovered.phases_ms == {"view": 1.0, "gathered": 9.0, "replayed": 40.0}
    assert recovered.duration_ms == 50.0
    assert recovered.at_ns == 150 * MS
    assert isinstance(caught_up, TaskCaughtUp)
    assert caught_up.after_ms == 40.0
    assert isinstance(found[TaskFailure], TaskFailure)


def test_a_recovery_under_way_is_not_written_yet(scripted: Scripted) -> None:
    reached = {name: DETECTED[name] for name in ("detected", "view", "gathered")}
    scripted.look = _look(recoveries=((_recovery(reached), False),))
    scripted.begin()
    scripted.writer.close(None)
    assert [type(event) for event in scripted.written()] == [DriverStarted, RunEnded]


def test_a_move_is_no_failure_and_no_recovery(scripted: Scripted) -> None:
    scripted.look = _look(recoveries=((_recovery(DETECTED | {"caught_up": 190 * MS}), True),))
    scripted.begin()
    scripted.writer.close(None)
    kinds = {type(event) for event in scripted.written()}
    assert kinds == {DriverStarted, TaskMoved, RunEnded}


def test_a_rollback_of_all_tasks_is_one_event(scripted: Scripted) -> None:
    reached = {name: DETECTED[name] for name in ("view", "gathered", "replayed")}
    later = {name: at_ns + MS for name, at_ns in reached.items()}
    both = _recovery(reached, failed=0), RecoveryState("count/1", 0, 8, "it was ended", later)
    scripted.look = _look(recoveries=tuple((each, False) for each in both))
    scripted.begin()
    scripted.writer.close(None)
    assert [event.checkpoint for event in scripted.written() if isinstance(event, RolledBack)] == [3]


def test_checkpoints_are_written_when_they_are_over(scripted: Scripted) -> None:
    times = (
        CheckpointState(1, 10 * MS, 30 * MS, False, 77),
        CheckpointState(2, 40 * MS, None, False),
        CheckpointState(3, 50 * MS, None, True),
    )
    scripted.look = _look(checkpoints=times)
    scripted.begin()
    scripted.writer.close(None)
    done = [event for event in scripted.written() if isinstance(event, CheckpointDone | CheckpointAbandoned)]
    assert [event.number for event in done] == [1, 2]
    assert isinstance(done[0], CheckpointDone)
    assert (done[0].duration_ms, done[0].size_bytes) == (20.0, 77)


@pytest.mark.parametrize(
    ("phase", "reported", "text"),
    [(RescalePhase.DONE, "done", ""), (RescalePhase.REFUSED, "refused", "a task is down")],
)
def test_a_change_of_widths_is_written_with_its_outcome(
    scripted: Scripted, phase: RescalePhase, reported: str, text: str
) -> None:
    scripted.look = _look(rescale=RescaleState(1, phase, {}, "a task is down"), tasks={"read": 2})
    scripted.begin()
    scripted.writer.close(None)
    (change,) = [event for event in scripted.written() if isinstance(event, WidthsChanged)]
    assert (change.phase, change.tasks, change.text) == (reported, {"read": 2}, text)


def test_a_request_for_other_widths_is_written_with_the_widths_it_asks_for(scripted: Scripted) -> None:
    scripted.look = _look(
        rescale=RescaleState(1, RescalePhase.CUTTING, {"count": 4}, ""), tasks={"read": 2, "count": 2}
    )
    scripted.begin()
    scripted.writer.close(None)
    (change,) = [event for event in scripted.written() if isinstance(event, WidthsChanged)]
    assert (change.phase, change.tasks) == ("requested", {"read": 2, "count": 4})


def test_a_driver_that_takes_over_at_a_cut_is_written_with_the_widths_of_the_cut(scripted: Scripted) -> None:
    plan = scripted.launched.image.plan
    scripted.launched.start.how = "took_over"
    scripted.launched.start.resumed = SimpleNamespace(checkpoint=3, plan=shape_of(plan.with_widths({"read": 3})))
    scripted.begin()
    scripted.writer.close(None)
    (started,) = [event for event in scripted.written() if isinstance(event, DriverStarted)]
    assert started.tasks == {"read": 3}


@pytest.mark.parametrize(
    ("has_failed", "what"), [(False, "its epoch"), (True, "the epoch in which its code has failed")]
)
def test_a_record_of_an_epoch_is_written_with_the_command_that_replays_it(
    scripted: Scripted, has_failed: bool, what: str
) -> None:
    scripted.begin()
    scripted.writer.note(WrittenRecord("count/0", 17, Path("/jobs/my epochs/17"), has_failed))
    scripted.writer.close(None)
    (line,) = [line for line in lines_of_history(scripted.written()) if line.kind == "capture"]
    assert line.text == f"count/0: {what}, since checkpoint 17, is in a record: clonos replay '/jobs/my epochs/17'"
    assert isinstance(line.events[0], EpochCaptured)
    assert line.task == "count/0"


def test_a_flood_of_alarms_is_cut_and_the_last_one_reports_it(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clonos.job.run_history.history_writer.wall_ns", lambda: 5 * MS)
    for number in range(3 * ALARMS_A_MINUTE_MAX):
        scripted.writer.note(Alarm(f"alarm {number}"))
    scripted.writer.note(Alarm("another report follows", is_routine=True))
    scripted.begin()
    scripted.writer.close(None)
    alarms = [event.text for event in scripted.written() if isinstance(event, Alarmed)]
    assert len(alarms) == ALARMS_A_MINUTE_MAX
    assert alarms[-1] == "further alarms of this minute are in the log of the driver only"


def test_passwords_are_in_no_history(scripted: Scripted) -> None:
    scripted.writer.note(Alarm("postgresql://me:secret@host/db is away"))
    scripted.begin()
    scripted.writer.close(JobFailed(Blame.ENVIRONMENT, "postgresql://me:secret@host/db is away" + "!" * 5000))
    assert "secret" not in repr(scripted.written())
    ended = scripted.written()[-1]
    assert isinstance(ended, RunEnded)
    assert len(ended.error) == 1000


def test_a_store_that_is_away_disturbs_nothing(tmp_path: Path) -> None:
    scripted = Scripted(Away(tmp_path))
    scripted.begin()
    scripted.writer.note(_failure())
    scripted.writer.close(None)
    assert scripted.written() == []
    assert [type(event) for event in scripted.writer.of_all_drivers()] == [DriverStarted, TaskFailure, RunEnded]

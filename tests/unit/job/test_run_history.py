"""History of a job as lines and figures: deaths of drivers, changed plans, checkpoints in one line, compared runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clonos import Job, files, values
from clonos.api.graph import JobGraph
from clonos.cli import ENDED, JOB_AT_FAULT, main
from clonos.core.checkpoint.checkpoint_metadata import encoded_shape
from clonos.core.model.options import Options
from clonos.io.store.object_files import LocalFiles
from clonos.io.store.segmented_log import SegmentedLog
from clonos.job.run_history.history_events import (
    EVENTS,
    CheckpointAbandoned,
    CheckpointDone,
    DriverStarted,
    Event,
    RunEnded,
    TaskFailure,
    TaskRecovered,
    encoded,
    log_of,
    read_events,
)
from clonos.job.run_history.history_lines import joined_checkpoints, lines_of_history
from clonos.job.run_history.run_figures import compared, differing_plan, figures_of, runs_of

SECOND = 1_000_000_000


def _shape(parallelism: int = 2, step: str = "count") -> bytes:
    job = JobGraph("counting")
    keyed = job.source(values([1]), name="read").key_by(lambda n: n)
    keyed.stateful_map(lambda _, state, n: (state, n), name=step).sink(files.jsonl("out"))
    return encoded_shape(job.compile(Options(), parallelism=parallelism).plan)


def _started(at_s: int, term: int = 1, job_id: str = "a", how: str = "afresh", shape: bytes = b"") -> DriverStarted:
    tasks = {"count": 2}
    return DriverStarted(
        at_ns=at_s * SECOND,
        job_id=job_id,
        term=term,
        how=how,
        checkpoint=term - 1,
        pid=7,
        host="here",
        version="1",
        tasks=tasks,
        shape=shape,
    )


def _checkpoint(at_s: int, number: int, duration_ms: float = 10.0, job_id: str = "a") -> CheckpointDone:
    return CheckpointDone(
        at_ns=at_s * SECOND, job_id=job_id, term=1, number=number, duration_ms=duration_ms, size_bytes=2048 * number
    )


def _recovered(at_s: int, duration_ms: float, job_id: str = "a") -> TaskRecovered:
    phases_ms = {"view": 0.0, "gathered": duration_ms / 4, "replayed": duration_ms * 3 / 4}
    return TaskRecovered(
        at_ns=at_s * SECOND,
        job_id=job_id,
        term=1,
        task="count/0",
        incarnation=2,
        cause="it was ended by SIGKILL",
        duration_ms=duration_ms,
        phases_ms=phases_ms,
        replayed_records=1,
    )


def _ended(at_s: int, job_id: str = "a", term: int = 1) -> RunEnded:
    return RunEnded(at_ns=at_s * SECOND, job_id=job_id, term=term, how="finished", checkpoint=3)


def _kinds(events: list[Event], has_ended: bool = True) -> list[str]:
    return [line.kind for line in lines_of_history(events, has_ended)]


def test_a_driver_without_an_end_has_died_if_another_has_started_or_none_runs() -> None:
    events: list[Event] = [_started(1), _started(5, term=2, how="resumed"), _ended(9, term=2)]
    assert _kinds(events) == ["start", "driver_death", "start", "end"]
    assert _kinds([_started(1)], has_ended=True) == ["start", "driver_death"]
    assert _kinds([_started(1)], has_ended=False) == ["start"]


def test_a_start_with_another_plan_names_what_differs() -> None:
    before, now = _started(1, shape=_shape()), _started(3, term=2, shape=_shape(4, "total"))
    (line,) = [line for line in lines_of_history([before, _ended(2), now, _ended(4)]) if line.kind == "plan_change"]
    expected = 'the task "count" is gone; the task "total" is new; the parallelism of "read" was 2, is 4'
    assert line.text == expected
    assert _kinds([before, _ended(2), _started(3, term=2, shape=_shape()), _ended(4)]) == ["start", "end"] * 2


def test_a_plan_of_another_version_is_not_compared() -> None:
    events: list[Event] = [_started(1, shape=b"unknown"), _ended(2), _started(3, term=2, shape=_shape()), _ended(4)]
    assert _kinds(events) == ["start", "end", "start", "end"]


def test_checkpoints_in_a_row_are_one_line_that_spans_all_of_them() -> None:
    events: list[Event] = [_started(1), *(_checkpoint(2 + n, 1 + n, 10.0 * (n + 1)) for n in range(3))]
    events += [_recovered(6, 40.0), _checkpoint(7, 4), _ended(8)]
    lines = list(joined_checkpoints(lines_of_history(events)))
    assert [line.kind for line in lines] == ["start", "checkpoints", "recovery", "checkpoint", "end"]
    assert lines[1].text == "1 to 3: 3 in 10 to 30 ms, 2.0 KiB to 6.0 KiB"
    assert (lines[1].began_ns, lines[1].at_ns) == (2 * SECOND - 10_000_000, 4 * SECOND)


def test_a_recovery_shows_its_phases_which_sum_to_its_duration() -> None:
    recovered = _recovered(6, 40.0)
    (line,) = lines_of_history([recovered], has_ended=False)
    assert line.text == "count/0 is live after 40 ms (view 0.0, gathered 10.0, replayed 30.0); 1 record replayed"
    assert line.began_ns == 6 * SECOND - 40_000_000


def test_figures_of_two_runs_stand_side_by_side() -> None:
    events: list[Event] = [_started(1), _checkpoint(2, 1), _recovered(3, 40.0), _recovered(4, 60.0), _ended(5)]
    events += [_started(6, job_id="b"), _checkpoint(7, 1, 30.0, "b"), _ended(16, "b")]
    earlier, later = runs_of(events)
    found = {each.name: each for each in compared(figures_of(later), figures_of(earlier))}
    assert (found["time"].value, found["time"].other, found["time"].ratio) == (10.0, 4.0, 2.5)
    assert (found["checkpoint, median"].value, found["checkpoint, median"].other) == (30.0, 10.0)
    assert (found["recoveries"].value, found["recoveries"].other, found["recoveries"].ratio) == (0, 2, None)
    assert (found["recovery, median"].value, found["recovery, median"].other) == (None, 50.0)
    assert found["recovery: replayed, median"].other == 37.5
    assert not differing_plan(later, earlier)


def test_a_line_that_cannot_be_read_is_counted_and_the_others_are_there(tmp_path: Path) -> None:
    store = LocalFiles(tmp_path)
    events: list[Event] = [
        _started(1),
        _checkpoint(2, 1),
        TaskFailure(at_ns=3 * SECOND, job_id="a", term=1, task="count/0", incarnation=1, cause="it raised"),
        CheckpointAbandoned(at_ns=4 * SECOND, job_id="a", term=1, number=2),
    ]
    for event in events:
        SegmentedLog(store, log_of(event)).write([encoded(event)])
    SegmentedLog(store, EVENTS).write([b'{"event":"of a later version","at_ns":5}', b"{torn"])
    assert read_events(store) == (events, 2)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that has run twice to its end, the second time with another plan."""
    folder = tmp_path_factory.mktemp("ran")
    for name in ("twice", "doubled"):
        job = Job("numbers", store=folder / "store")
        job.source(values([1, 2, 3]), name="read").map(lambda n: n * 2, name=name).sink(files.jsonl(folder / "out"))
        job.run(slots="thread", parallelism=2 if name == "doubled" else 1)
    return folder / "store"


def test_the_command_shows_the_starts_and_ends_of_all_runs(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(ran), "--format", "json"]) == ENDED
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [each["event"] for each in found if not each["event"].startswith("checkpoint")]
    assert kinds == ["start", "end", "plan_change", "start", "end"]
    assert found[0]["how"] == "afresh"
    assert found[0]["at"].endswith("Z")
    assert found[-1]["text"].startswith("all input is processed, after checkpoint ")
    assert main(["history", str(ran), "--last", "1"]) == ENDED
    assert "all input is processed" in capsys.readouterr().out


def test_the_last_run_is_compared_with_the_one_before_and_their_plans_too(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", str(ran), "--against", str(ran)]) == ENDED
    shown = capsys.readouterr().out
    assert "starts" in shown
    assert "the plan differs: " in shown


def test_a_place_without_a_history_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(tmp_path)]) == JOB_AT_FAULT
    assert f"{tmp_path} has no history. Name the checkpoint store" in capsys.readouterr().err

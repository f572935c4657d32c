"""Epochs of tasks on child processes: captured while the job runs, and kept when its code fails."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import sqlite
from clonos.core.log.determinants import elements_covered
from clonos.core.model.errors import JobError
from clonos.core.ports.redaction import RedactedOrigin
from clonos.core.wire.capture_messages import Elements
from clonos.io.epochs.record_parts import RecordedWay, SourceRecords
from clonos.io.epochs.record_reader import EpochRecord
from clonos.io.store.object_files import LocalFiles
from clonos.job import Job
from clonos.job.handle import Handle
from clonos.job.results import JobCrashed
from clonos.job.run_history.history_events import EpochCaptured, read_events
from clonos.testing import replay
from clonos_standby.driver.epoch_writing import CaptureFailed
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled
from tests.waiting import await_condition

pytestmark = pytest.mark.processes

LIMIT_S = scaled(60.0)
wait_until = partial(await_condition, LIMIT_S)
KEYS, POISON = 7, 500
TOTAL = "total/0"


class Prices:
    """Job of two tasks whose code raises at one number; its only checkpoints are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, Gate(folder / "gate")

    def job(self, **options: Any) -> Job:
        job = Job("prices", slots="process", checkpoint_every="1h", store=str(self.folder / "store"), **options)
        numbers = job.source(GatedNumbers(self.gate), name="read", parallelism=1)
        priced = numbers.map(_priced, name="priced")
        totals = priced.key_by(lambda n: n % KEYS).stateful_map(_total, name="total")
        totals.sink(
            sqlite(str(self.folder / "out.db"), "totals", ["n", "total"]), name="out"
        )  # makes no checkpoint due
        return job

    def started(self, records: int, **options: Any) -> Handle:
        """The job, which has read and counted this many records after its first checkpoint."""
        handle = self.job(**options).start()
        handle.failed_epoch.time_s = LIMIT_S  # a busy machine takes longer than a second
        handle.checkpoint(LIMIT_S)
        wait_until(lambda: handle.checkpoints()[-1].completed_ns is not None)
        self.gate.open_to(records)
        wait_until(lambda: _counted(handle) == {"read-priced/0": records, TOTAL: records})
        return handle


def _priced(n: int) -> int:
    if n == POISON:
        raise KeyError("eur")
    return n


def _total(_: Any, total: int | None, n: int) -> tuple[int, list[int]]:
    return (total or 0) + n, [n, (total or 0) + n]


def batches_of(record: EpochRecord) -> list[list[int]]:
    """The records of each read."""
    pieces = [piece for piece in record.inputs() if isinstance(piece, SourceRecords)]
    return [pickle.loads(piece.batch) for piece in pieces]  # noqa: S301  written by this test


def _counted(handle: Handle) -> dict[str, int]:
    return {task.name: task.counters.get("records_in", 0) for task in handle.status().tasks}


def test_the_epoch_of_a_running_task_has_its_log_its_input_and_its_output(tmp_path: Path) -> None:
    with Prices(tmp_path).started(100) as handle:
        folder = handle.capture(TOTAL)
        record = EpochRecord(folder)
        assert folder.parent == tmp_path / "store.epochs" / "total-0"
        assert (record.head.task, record.head.way, record.head.missing) == (TOTAL, RecordedWay.CAPTURED, ())
        taken = elements_covered(record.log(), 1)
        pieces = [piece for piece in record.inputs() if isinstance(piece, Elements)]
        assert taken == [sum(piece.count for piece in pieces)] == [100]
        assert record.state()
        assert handle.end() is None
        wait_until(lambda: any(isinstance(event, EpochCaptured) for event in handle.history()))
        (event,) = [event for event in handle.history() if isinstance(event, EpochCaptured)]
        assert (event.task, event.folder, event.has_failed) == (TOTAL, str(folder), False)
        handle.stop(drain=False)


def test_the_records_of_a_source_are_in_its_epoch(tmp_path: Path) -> None:
    with Prices(tmp_path).started(100) as handle:
        record = EpochRecord(handle.capture("read-priced/0"))
        batches = batches_of(record)
        assert [n for batch in batches for n in batch] == list(range(100))
        assert sum(emitted.count for emitted in record.expected()) == 100
        handle.stop(drain=False)


def test_a_job_that_fails_by_its_code_keeps_the_epoch_of_the_task(tmp_path: Path) -> None:
    prices = Prices(tmp_path)
    with prices.started(100) as handle:
        prices.gate.open_to(POISON + 100)
        with pytest.raises(JobCrashed) as crashed:
            handle.wait(LIMIT_S)
    text = str(crashed.value)
    found = re.search(r"^  clonos replay (\S+)$", text, re.MULTILINE)
    assert text.startswith("job prices has failed: step priced"), text
    assert found, text
    record = EpochRecord(Path(found[1]))
    assert (record.head.way, record.head.task) == (RecordedWay.FAILED, "read-priced/0")
    (event,) = [each for each in read_events(LocalFiles(tmp_path / "store"))[0] if isinstance(each, EpochCaptured)]
    assert (event.folder, event.has_failed) == (found[1], True)
    assert record.head.failure is not None
    assert record.head.failure.error == "KeyError: 'eur'"
    assert record.head.unfinished_bytes > 0
    batches = batches_of(record)
    assert POISON in batches[-1]


def test_a_redacted_value_is_in_no_record_of_a_job(tmp_path: Path) -> None:
    prices = Prices(tmp_path)
    with prices.started(100, record="all", redact=_without_number) as handle:
        captured = handle.capture(TOTAL)
        for part in captured.iterdir():
            assert b"_priced" not in part.read_bytes(), part
        handle.checkpoint(LIMIT_S)
        prices.gate.open_to(POISON + 100)
        with pytest.raises(JobCrashed, match="KeyError: 'eur'"):
            handle.wait(LIMIT_S)
    (folder,) = (found.parent for found in tmp_path.glob("store.epochs/read-priced-0/*/record.json"))
    record = EpochRecord(folder)
    assert not any(b"eur" in part.read_bytes() for part in folder.iterdir())
    assert record.head.failure is not None
    assert (record.head.failure.error, record.head.failure.record) == ("KeyError", "")
    assert {n for batch in batches_of(record) for n in batch} == {0}
    report = replay(folder, prices.job())
    assert report.epoch.head.redacted[0].endswith("records of the source read were redacted")
    assert not report.is_as_recorded, "0 raises no KeyError"
    assert EpochRecord(captured).head.redacted
    recorded = [found.parent for found in tmp_path.glob("store.recorded/*/*/record.json")]
    for folder in (captured, *recorded):
        numbers = [n for batch in batches_of(EpochRecord(folder)) for n in batch]
        assert not any(numbers), folder
        assert replay(folder, prices.job()).is_as_recorded


def _without_number(origin: RedactedOrigin, value: Any) -> Any:
    return 0 if origin.kind == "source" else tuple(0 for _ in value)


def test_the_command_that_the_failure_names_repeats_it_in_another_process(tmp_path: Path) -> None:
    prices = Prices(tmp_path)
    with prices.started(100) as handle:
        prices.gate.open_to(POISON + 100)
        with pytest.raises(JobCrashed) as crashed:
            handle.wait(LIMIT_S)
    command = str(crashed.value).splitlines()[-1].split()
    assert command[:2] == ["clonos", "replay"]
    prices.gate.open_to(0)  # a replay reads no source
    program = [sys.executable, "-m", "clonos.cli", *command[1:]]
    done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert f"{POISON} elements of its output equal byte by byte" in done.stdout, done
    assert f"then at record {POISON + 1} KeyError: 'eur', as it happened" in done.stdout
    assert "nothing outside was asked" in done.stdout


def test_no_record_is_written_if_that_is_turned_off(tmp_path: Path) -> None:
    prices = Prices(tmp_path)
    with prices.started(10, capture_on_failure=False) as handle:
        prices.gate.open_to(POISON + 1)
        with pytest.raises(JobCrashed) as crashed:
            handle.wait(LIMIT_S)
    assert "epoch" not in str(crashed.value)
    assert not (tmp_path / "store.epochs").exists()


def test_a_capture_waits_for_a_task_whose_process_was_killed(tmp_path: Path) -> None:
    with Prices(tmp_path).started(100) as handle:
        status = handle.status()
        slot = next(task.slot for task in status.tasks if task.name == TOTAL)
        os.kill(next(each.pid for each in status.slots if each.slot == slot), signal.SIGKILL)
        record = EpochRecord(handle.capture(TOTAL, timeout=LIMIT_S))
        assert elements_covered(record.log(), 1) == [100]
        assert sum(piece.count for piece in record.inputs() if isinstance(piece, Elements)) == 100
        handle.stop(drain=False)


def test_a_folder_that_cannot_be_written_is_named_and_the_job_goes_on(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with Prices(tmp_path).started(10) as handle:
        with pytest.raises(CaptureFailed, match=r"taken.* cannot be written: .*File exists"):
            handle.capture(TOTAL, tmp_path / "taken")
        assert handle.end() is None
        handle.stop(drain=False)


def test_a_task_that_the_job_does_not_have_is_refused_with_the_names_of_its_tasks(tmp_path: Path) -> None:
    with Prices(tmp_path).started(10) as handle:
        with pytest.raises(JobError, match=r"has no task 'total'; it has read-priced/0, total/0"):
            handle.capture("total")
        handle.stop(drain=False)
        handle.wait(LIMIT_S)
        with pytest.raises(JobError, match="has ended"):
            handle.capture(TOTAL)


def test_whole_epochs_of_a_running_job_are_recorded_and_repeat_themselves(tmp_path: Path) -> None:
    prices = Prices(tmp_path)
    with prices.started(100, record="all", record_keep=2) as handle:
        slot = next(task.slot for task in handle.status().tasks if task.name == TOTAL)
        os.kill(next(each.pid for each in handle.status().slots if each.slot == slot), signal.SIGKILL)
        wait_until(lambda: _counted(handle) == {"read-priced/0": 100, TOTAL: 100})
        handle.checkpoint(LIMIT_S)
        for records in (200, 300):
            prices.gate.open_to(records)
            wait_until(lambda records=records: _counted(handle) == {"read-priced/0": records, TOTAL: records})  # type: ignore[misc]
            handle.checkpoint(LIMIT_S)
        handle.stop()
        handle.wait(LIMIT_S)
    for name in ("read-priced-0", "total-0"):
        found = (tmp_path / "store.recorded" / name).iterdir()  # beside the epochs that a busy machine has given up
        folders = sorted((each for each in found if each.name.isdigit()), key=lambda each: int(each.name))
        assert 1 <= len(folders) <= 2, folders
        assert folders[0].stat().st_mode & 0o777 == 0o700
        record = EpochRecord(folders[0])
        assert (record.head.way, record.head.is_whole, record.head.missing) == (RecordedWay.RUNNING, True, ())
        report = replay(folders[0])
        assert report.differences == [], report
        sinks = [(each.step, each.rows) for each in record.head.sinks]
        assert sinks == ([("out", report.comparison.equal_rows)] if name == "total-0" else [])
        assert report.comparison.equal_rows == (report.replayed.records if name == "total-0" else 0)

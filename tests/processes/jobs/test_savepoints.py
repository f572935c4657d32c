"""Savepoints of running jobs: taken, moved, started from in another store, and refused where they do not fit."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos.agg import count
from clonos.api.windows import Tumbling
from clonos.cli import main
from clonos.connectors import files, sqlite, values
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.io.store.object_files import LocalFiles
from clonos.io.store.savepoint import (
    MANIFEST_NAME,
    SavepointCorrupt,
    SavepointExists,
    SavepointMissing,
    SavepointNotWritten,
)
from clonos.io.store.store import CheckpointStore
from clonos.job import Job
from clonos.job.continuing.from_savepoint import (
    HalfCopied,
    SavepointStart,
    SavepointUnfit,
    StateWouldBeDropped,
    StoreNotEmpty,
)
from clonos.job.continuing.start_widths import WidthsRefused
from clonos.job.continuing.taking import NoCheckpoint
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled
from tests.waiting import await_condition

pytestmark = pytest.mark.processes

LIMIT_S = scaled(60.0)
wait_until = partial(await_condition, LIMIT_S)
WINDOW, KEYS = 50, 3


class Words:
    """Job that counts words per window, into files, and numbers them by word, into a table, at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, Gate(folder / "gate")

    def job(
        self,
        run: str,
        *,
        parallelism: int = 1,
        has_total: bool = True,
        has_more: bool = False,
        has_changes: bool = False,
    ) -> Job:
        """The job with the outputs and the store of one run."""
        store = str(self.folder / f"store-{run}")
        job = Job("words", slots="process", checkpoint_every="200ms", parallelism=parallelism, store=store)
        source = GatedNumbers(self.gate)
        numbers = job.source(source, name="read", parallelism=1, timestamps=lambda n: 1_700_000_000 + n)
        rows = numbers.map(lambda n: {"word": n % KEYS, "n": n}, name="row")
        windows = rows.key_by("word").window(Tumbling(f"{WINDOW}s"))
        totals = windows.aggregate(rows=count(), name="per-window")
        shown = totals.map(lambda window: [window.key, window.end.timestamp(), window.value["rows"]], name="shown")
        shown.sink(files.jsonl(str(self.folder / f"output-{run}")), name="windows")
        seen = rows.key_by("word").stateful_map(_numbered, name="seen")
        if has_total:
            seen = seen.limit(10_000, name="again")
        if has_more:
            seen = seen.limit(10_000, name="more")
        if has_changes:
            seen = seen.filter(lambda row: row["n"] % 2 == 0, name="even")
            sums = rows.filter(lambda row: row["n"] >= 0, name="all").key_by(lambda row: row["n"] % 2)
            spans = sums.window(Tumbling(f"{2 * WINDOW}s")).aggregate(rows=count(), name="by-parity")
            sizes = spans.map(lambda window: window.value["rows"], name="size")
            sizes.sink(files.jsonl(str(self.folder / f"sizes-{run}")), name="sizes")
            more = job.source(values(range(3)), name="read-more", parallelism=1)
            more.sink(files.jsonl(str(self.folder / f"more-{run}")), name="more-rows")
        seen.sink(sqlite(str(self.folder / "table.db"), f"rows_{run}", ["word", "n", "seen"]), name="table")
        return job

    def windows(self, run: str) -> list[Any]:
        """Windows that the output of a run shows, sorted."""
        folder = self.folder / f"output-{run}"
        return sorted(files.read_committed(folder)) if folder.exists() else []

    def table(self, run: str) -> list[Any]:
        """Rows of the table of a run, by number."""
        try:
            with closing(sqlite3.connect(self.folder / "table.db", timeout=20)) as connection:
                return connection.execute(f"SELECT word, n, seen FROM rows_{run} ORDER BY n").fetchall()
        except sqlite3.OperationalError:
            return []

    def started(self, records: int) -> Any:
        """The first run, which has read this many records."""
        self.gate.open_to(records)
        handle = self.job("old").start()
        wait_until(lambda: len(self.table("old")) == records)
        return handle


def _numbered(_: Any, seen: int | None, row: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return (seen or 0) + 1, row | {"seen": (seen or 0) + 1}


def windows_of(first: int, last: int) -> list[Any]:
    """Windows of the numbers below ``last``, without those that end by ``first``."""
    counts = Counter((n % KEYS, (1_700_000_000 + n) // WINDOW * WINDOW + WINDOW) for n in range(last))
    return sorted([key, float(end), rows] for (key, end), rows in counts.items() if end > 1_700_000_000 + first)


def rows_of(first: int, last: int) -> list[Any]:
    """Rows of the table for these numbers."""
    return [(n % KEYS, n, n // KEYS + 1) for n in range(first, last)]


def test_a_job_that_starts_from_a_moved_savepoint_goes_on_from_its_records(tmp_path: Path) -> None:
    words = Words(tmp_path)
    with words.started(420) as handle:
        savepoint = handle.savepoint(tmp_path / "savepoint", timeout=LIMIT_S)
        later = handle.checkpoint(LIMIT_S)
        assert later > savepoint.checkpoint
        state = handle.state("seen", checkpoint=later)
        assert (state.checkpoint, dict(state.items())) == (later, dict.fromkeys(range(KEYS), 420 // KEYS))
        assert [state.get(key) for key in range(KEYS + 1)] == [*[420 // KEYS] * KEYS, None]
        with pytest.raises(SavepointExists):
            handle.savepoint(tmp_path / "savepoint")
        words.gate.open_to(600)
        wait_until(lambda: len(words.table("old")) == 600)
        numbers = handle.checkpoints()[-1].number
        wait_until(lambda: any(c.number > numbers + 2 and c.completed_ns for c in handle.checkpoints()))
        handle.stop(drain=False)
        assert handle.wait(LIMIT_S).was_aborted
        with pytest.raises(NoCheckpoint):
            handle.savepoint(tmp_path / "later")
    shutil.move(tmp_path / "savepoint", tmp_path / "moved")
    shutil.rmtree(tmp_path / "store-old")
    windows = words.windows("old")
    words.gate.end(1_000)
    result = words.job("new").run(from_savepoint=str(tmp_path / "moved"))
    assert result.has_finished
    assert result.job_id != handle.job_id
    assert words.windows("new") == windows_of(420, 1_000)
    assert words.table("new") == rows_of(420, 1_000)
    assert words.windows("old") == windows


def _state(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """What ``clonos state`` prints as JSON."""
    assert main(["state", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_status_has_the_progress_of_a_savepoint_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, place, write, seen = Words(tmp_path), str(tmp_path / "savepoint"), LocalFiles.write, []

    def noting_write(self: LocalFiles, name: str, data: bytes) -> None:
        if str(self.root) == place:
            seen.extend(handle.status().savepoints)
        write(self, name, data)

    monkeypatch.setattr(LocalFiles, "write", noting_write)
    with words.started(4 * WINDOW) as handle:
        handle.savepoint(place)
        assert handle.status().savepoints == ()
        handle.stop()
        handle.wait(LIMIT_S)
    assert [each.objects_done for each in seen] == list(range(len(seen)))
    assert {(each.path, each.objects_total) for each in seen} == {(place, len(seen))}
    assert seen[1].text.startswith(f"writing the savepoint {place}: 1 of {len(seen)} objects, ")
    assert seen[0].left_s is None
    assert seen[-1].left_s is not None


def test_the_state_of_a_savepoint_and_of_the_store_is_listed_shown_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = Words(tmp_path)
    savepoint, store = str(tmp_path / "saved"), str(tmp_path / "store-old")
    with words.job("old").start() as handle:
        words.gate.open_to(30)
        wait_until(lambda: len(words.table("old")) == 30)
        handle.savepoint(savepoint)
        words.gate.open_to(32)  # one more of the words 0 and 1
        wait_until(lambda: len(words.table("old")) == 32)
        handle.stop()
        handle.wait(LIMIT_S)
    capsys.readouterr()
    (seen,) = (each for each in _state(capsys, "ls", savepoint) if each["step"] == "seen")
    assert (seen["entries"], seen["tasks"]) == (KEYS, 1)
    before = {row["key"]: row["value"] for row in _state(capsys, "show", savepoint, "seen")}
    after = {row["key"]: row["value"] for row in _state(capsys, "show", store, "seen", "--limit", "0")}
    assert (before, after) == ({0: 10, 1: 10, 2: 10}, {0: 11, 1: 11, 2: 10})
    assert [row["value"] for row in _state(capsys, "show", store, "seen", "--key", " 1 ")] == [11]
    assert _state(capsys, "show", store, "seen", "--state", "other") == []
    assert len(_state(capsys, "show", store, "seen", "--limit", "2")) == 2
    changes = _state(capsys, "diff", savepoint, store, "seen")
    assert [(each["change"], each["key"], each["value"], each["other"]) for each in changes] == [
        ("changed", 0, 10, 11),
        ("changed", 1, 10, 11),
    ]
    assert _state(capsys, "diff", savepoint, savepoint) == []
    assert main(["state", "show", savepoint, "seen", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert "1 entry of seen; 2 more, --limit 0 shows all" in shown
    for wrong, text in (
        (["show", savepoint, "nothing"], "has no state of a step 'nothing'. It has the steps"),
        (["show", savepoint, "seen", "--checkpoint", "9999"], "is a savepoint, which has no checkpoint 9999"),
        (["ls", store, "--checkpoint", "9999"], "has no checkpoint 9999. It has the checkpoints"),
        (["ls", str(tmp_path)], "It has neither a savepoint nor the checkpoint store of a job."),
    ):
        assert main(["state", *wrong]) == 1
        assert text in capsys.readouterr().err


def test_a_job_that_was_stopped_with_a_savepoint_is_continued_without_a_gap(tmp_path: Path) -> None:
    words = Words(tmp_path)
    with words.started(300) as handle:
        handle.stop(savepoint=tmp_path / "last")
        handle.wait(LIMIT_S)
    words.gate.end(500)
    assert words.job("new", has_more=True).run(from_savepoint=str(tmp_path / "last")).has_finished
    assert sorted(words.windows("old") + words.windows("new")) == windows_of(0, 500)
    assert words.table("old") + words.table("new") == rows_of(0, 500)


def test_a_stop_with_a_savepoint_before_the_tasks_run_waits_for_them_and_writes_it(tmp_path: Path) -> None:
    job = Job("early", store=str(tmp_path / "store"))
    job.source(values(range(1_000)), name="in").sink(files.jsonl(tmp_path / "out"), name="out")
    with job.start(slots="process") as handle:
        handle.stop(savepoint=tmp_path / "last")
        assert handle.wait(LIMIT_S).ending in (Ending.DRAINED, Ending.FINISHED)
    assert (tmp_path / "last" / MANIFEST_NAME).exists()


def test_an_aborted_start_reports_that_no_savepoint_was_written(tmp_path: Path) -> None:
    job = Job("early", store=str(tmp_path / "store"))
    job.source(values(range(1_000)), name="in").sink(files.jsonl(tmp_path / "out"), name="out")
    with job.start(slots="process") as handle:
        handle.stop(savepoint=tmp_path / "last")
        handle.stop(drain=False)
        with pytest.raises(SavepointNotWritten, match="early was aborted, so it has no final checkpoint"):
            handle.wait(LIMIT_S)
    assert not (tmp_path / "last").exists()


def test_a_job_with_new_keyed_steps_and_a_new_source_goes_on_from_the_state_of_the_steps_that_stayed(
    tmp_path: Path,
) -> None:
    words = Words(tmp_path)
    with words.started(420) as handle:
        handle.stop(savepoint=tmp_path / "last")
        handle.wait(LIMIT_S)
    words.gate.end(1_000)
    assert words.job("new", has_changes=True).run(from_savepoint=str(tmp_path / "last")).has_finished
    assert sorted(words.windows("old") + words.windows("new")) == windows_of(0, 1_000)
    assert words.table("new") == [row for row in rows_of(420, 1_000) if row[1] % 2 == 0]
    assert sum(files.read_committed(tmp_path / "sizes-new")) == 1_000 - 420
    assert sorted(files.read_committed(tmp_path / "more-new")) == [0, 1, 2]


def test_a_start_is_refused_where_the_savepoint_does_not_fit_and_leaves_an_empty_store(tmp_path: Path) -> None:
    words, place = Words(tmp_path), str(tmp_path / "savepoint")
    with words.started(100) as handle:
        handle.stop(savepoint=place)
        handle.wait(LIMIT_S)
    with pytest.raises(SavepointUnfit, match=r'the step "again" took its input by hash, and takes it by rebalance'):
        words.job("new", parallelism=2).run(from_savepoint=place)
    with pytest.raises(WidthsRefused, match="again cannot be divided"):
        words.job("new").run(from_savepoint=place, widths=("again=2",))
    with pytest.raises(StateWouldBeDropped, match="again"):
        words.job("new", has_total=False).run(from_savepoint=place)
    with pytest.raises(StoreNotEmpty):
        words.job("old").run(from_savepoint=place)
    with pytest.raises(SavepointMissing):
        words.job("new").run(from_savepoint=str(tmp_path / "store-old"))
    half = tmp_path / "half"
    shutil.copytree(place, half)
    one = next(path for path in sorted(half.rglob("*")) if path.is_file() and path.name != MANIFEST_NAME)
    one.unlink()
    with pytest.raises(SavepointCorrupt, match="is missing"):
        words.job("new").run(from_savepoint=str(half))
    assert not (tmp_path / "store-new").exists()
    words.gate.end(200)
    assert words.job("new", has_total=False).run(from_savepoint=place, allow_dropped_state=True).has_finished
    assert words.table("new") == rows_of(100, 200)


def test_a_start_that_ended_before_the_state_was_copied_is_not_taken_for_a_job_without_state(
    tmp_path: Path,
) -> None:
    words, place = Words(tmp_path), str(tmp_path / "savepoint")
    with words.started(100) as handle:
        handle.stop(savepoint=place)
        handle.wait(LIMIT_S)
    store = CheckpointStore(str(tmp_path / "store-new"))
    start = SavepointStart(place, allow_dropped_state=False)
    store.open_job("words", splits=start.record.splits, savepoint=place, term_before=start.term)
    for resume in (False, True):
        with pytest.raises(HalfCopied, match="--overwrite"):
            words.job("new").run(resume=resume)
    words.gate.end(200)
    assert words.job("new").run(from_savepoint=place, overwrite=True).has_finished
    assert words.table("new") == rows_of(100, 200)

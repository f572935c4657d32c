"""Rows of the sinks of a task in a replay: compared with the digests that the live task has left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from clonos import Job, col, files, sqlite, values
from clonos.config import RunOptions
from clonos.core.checkpoint.checkpoint_metadata import TaskEntry
from clonos.core.model.ids import CheckpointId, Incarnation
from clonos.core.model.options import Options
from clonos.core.ports.task_port import Activation
from clonos.core.ports.task_snapshot import SINK_DIGEST_BYTES, SinkRows
from clonos.core.recovery.capture import EpochEnd, TaskCapture
from clonos.core.task.opening import chain_context
from clonos.job.description import graph_of
from clonos.job.recording import with_sink_digests
from clonos.operators.operator import Drop
from clonos.operators.sink_digests import NO_DIGEST, WatchedSink, digest_of_row, digests_of_batch
from clonos.replay.loading import image_of, load_epoch
from clonos.replay.output_comparison import RanLive, compared
from clonos.replay.replay_report import ReplayReport
from clonos.replay.replay_session import report_on
from clonos.replay.replaying import replay_epoch
from tests.harnesses.recorded_jobs import record_job

ROWS = [{"name": ("ann", "bob", "eve")[n % 3], "n": n} for n in range(60)]


def _immediate(stream: Any, folder: Path) -> None:
    stream.sink(sqlite(folder / "rows.db", "rows"), name="out")


def _upsert(stream: Any, folder: Path) -> None:
    stream.key_by("n").sink(sqlite(folder / "rows.db", "rows", ["name", "n"], upsert="n"), name="out")


def _transactional(stream: Any, folder: Path) -> None:
    stream.sink(files.jsonl(folder / "out"), name="out")


SINKS = [_immediate, _upsert, _transactional]

COUNT = [0]


def counted(row: dict[str, Any]) -> dict[str, Any]:
    COUNT[0] += 1  # clonos: ok CLN504 a replay shall find it
    return row | {"count": COUNT[0] if row["n"] == 40 else 0}


def named(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"name": row["name"].upper()}


def other(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"name": "EVE?" if row["n"] == 40 else row["name"].upper()}


def _job(function: Any, sink: Callable[[Any, Path], None], folder: Path) -> Job:
    job = Job("prices")
    sink(job.source(values(ROWS), name="shop").map(function, name="step"), folder)
    return job


def _recorded(job: Job, folder: Path, name: str, *, has_sink_digests: bool = True) -> Path:
    return record_job(job, folder, barriers={3: 1}, epoch=1, has_sink_digests=has_sink_digests)[name]


def _report(folder: Path, **changed: Any) -> ReplayReport:
    epoch = load_epoch(folder)
    epoch = epoch._replace(head=replace(epoch.head, **changed))
    replayed = replay_epoch(epoch)
    return ReplayReport(epoch, replayed, compared(epoch, replayed))


def _task(sink: Any) -> str:
    return "out/0" if sink is _upsert else "shop-step/0"


@pytest.mark.parametrize("sink", SINKS)
def test_the_rows_of_a_sink_are_equal_to_the_live_ones(sink: Any, tmp_path: Path) -> None:
    report = _report(_recorded(_job(named, sink, tmp_path), tmp_path, _task(sink)))
    assert report.differences == []
    assert "36 rows of its sinks equal\n" in str(report)
    assert (report.to_json()["equal_sink_rows"], report.to_json()["sink_rows"]) == (36, 0)


@pytest.mark.parametrize("sink", [_immediate, _transactional])
def test_the_first_row_that_differs_is_reported_with_its_record(sink: Any, tmp_path: Path) -> None:
    report = _report(_recorded(_job(counted, sink, tmp_path), tmp_path, "shop-step/0"))
    [difference] = report.differences
    assert (difference.record, difference.last_record, difference.where) == (17, 17, "to the sink out")
    assert difference.now == "{'name': 'bob', 'n': 40, 'count': 17}"
    assert report.comparison.equal_rows == 35


@pytest.mark.parametrize("sink", [_immediate, _transactional])
def test_a_comparison_with_changed_code_names_the_row_of_the_live_task(sink: Any, tmp_path: Path) -> None:
    folder = _recorded(_job(named, sink, tmp_path), tmp_path, "shop-step/0")
    report = report_on(load_epoch(folder), _job(other, sink, tmp_path), frozenset())
    [difference] = report.differences
    assert (difference.record, difference.live) == (17, RanLive.WAS)


@pytest.mark.parametrize(("rows", "text"), [(35, "is   {'name': 'EVE', 'n': 59}"), (38, "was  2 rows from 37 on")])
def test_rows_that_are_missing_or_too_many_are_a_difference(rows: int, text: str, tmp_path: Path) -> None:
    folder = _recorded(_job(named, _transactional, tmp_path), tmp_path, "shop-step/0")
    [sink] = load_epoch(folder).head.sinks
    report = _report(folder, sinks=(SinkRows(sink.step, sink.since, rows, sink.digests),))
    assert len(report.differences) == 1
    assert text in str(report)


def test_rows_of_a_record_without_digests_are_reported_as_not_compared(tmp_path: Path) -> None:
    report = _report(_recorded(_job(named, _transactional, tmp_path), tmp_path, "shop-step/0", has_sink_digests=False))
    assert report.differences == []
    assert str(report).count("36 rows of its sink not compared") == 1


def test_rows_of_a_batch_have_the_digests_that_each_has_alone() -> None:
    values = [7, 2**70, -(2**63), 1.5, None, True, "word", "\ud800", b"x", [1, "a"], {"a": {1, 2}}, (), object()]
    rows = [{"word": value, "count": number} for number, value in enumerate(values)]
    assert digests_of_batch(rows) == b"".join(map(digest_of_row, rows))
    assert digests_of_batch(rows)[-SINK_DIGEST_BYTES:] == NO_DIGEST, "an object has no encoding"


def test_rows_beyond_the_limit_have_no_digest() -> None:
    for is_columnar in (False, True):
        sink = WatchedSink("out", Drop(), rows_max=10)
        for rows in (ROWS[:4], ROWS[4:36], ROWS[36:]):
            if is_columnar:
                sink.columns(pa.RecordBatch.from_pylist(rows))
            else:
                sink.rows(rows)
        assert (sink.count, len(sink.digests)) == (60, 10 * SINK_DIGEST_BYTES)


def test_rows_beyond_the_limit_are_reported_as_not_compared(tmp_path: Path) -> None:
    folder = _recorded(_job(named, _transactional, tmp_path), tmp_path, "shop-step/0")
    [sink] = load_epoch(folder).head.sinks
    cut = SinkRows(sink.step, sink.since, sink.rows, sink.digests[: 10 * SINK_DIGEST_BYTES])
    assert "10 rows of its sinks equal; 26 rows of its sink not compared" in str(_report(folder, sinks=(cut,)))


def test_rows_without_an_encoding_are_counted_as_not_compared(tmp_path: Path) -> None:
    folder = _recorded(_job(named, _transactional, tmp_path), tmp_path, "shop-step/0")
    assert digest_of_row(object()) == NO_DIGEST
    [sink] = load_epoch(folder).head.sinks
    without = SinkRows(sink.step, sink.since, sink.rows, NO_DIGEST + sink.digests[SINK_DIGEST_BYTES:])
    assert "35 rows of its sinks equal; 1 row of its sink not compared" in str(_report(folder, sinks=(without,)))


def test_rows_of_columns_are_compared(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    job = Job("prices")
    table = job.source(files.parquet(tmp_path / "rows.parquet"), name="shop")
    table.filter(col("n") > 3, name="step").sink(files.parquet(tmp_path / "out"), name="out")
    report = _report(record_job(job, tmp_path, has_sink_digests=True)["shop-step/0"])
    assert report.differences == []
    assert report.comparison.equal_rows > 3
    assert report.comparison.unknown_rows == 0


@pytest.mark.parametrize(("since", "is_there"), [(1, True), (2, False)])
def test_digests_that_begin_at_another_barrier_are_left_out_of_the_record(
    since: int, is_there: bool, tmp_path: Path
) -> None:
    epoch = load_epoch(_recorded(_job(named, _transactional, tmp_path), tmp_path, "shop-step/0"))
    assert epoch.snapshot is not None
    rows = SinkRows("out", CheckpointId(since), 1, bytes(SINK_DIGEST_BYTES))
    entry = TaskEntry(epoch.head.task_id, Incarnation(1), CheckpointId(1), (), 0, False, ())
    end = EpochEnd(0, replace(epoch.snapshot, sinks=(rows,)))
    view: Any = None
    capture = TaskCapture(image_of(epoch).plan, view, entry, epoch.snapshot, 1, 1, end)
    assert capture.sinks == ((rows,) if is_there else ())


def test_digests_are_made_for_the_recorded_tasks_alone(tmp_path: Path) -> None:
    image = graph_of(_job(named, _upsert, tmp_path)).compile(Options())
    names = [vertex.name for vertex in image.plan.vertices]
    for record, expected in ((("out/0",), ["out"]), (("all",), names), ((), [])):
        found = with_sink_digests(RunOptions(record=record), image).vertices
        assert [each.name for each in found if each.has_sink_digests] == expected


def test_the_digests_of_a_successor_begin_at_the_checkpoint_that_it_goes_on_from(tmp_path: Path) -> None:
    epoch = load_epoch(_recorded(_job(named, _transactional, tmp_path), tmp_path, "shop-step/0"))
    nothing: Any = None
    for snapshot, expected in ((epoch.snapshot, 1), (None, 0)):
        activation = Activation(Incarnation(2), snapshot, None, b"", 0, 1, False, "job-1")
        plan = image_of(epoch).plan
        context = chain_context(plan, epoch.head.task_id, activation, 0, nothing, nothing, lambda: False)
        assert context.checkpoint == expected

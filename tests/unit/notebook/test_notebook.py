"""What a notebook shows: short reprs, the graph, the tasks, the rows, and the first rows of a stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from clonos import Job, JobError, Stream, blackhole, collect, stdout, values
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.connectors.html_table import ROWS_SHOWN, html_of_rows
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.core.model.progress import TaskPhase
from clonos.job import JobCrashed
from clonos.job.results import Result
from clonos.job.status_view import status_html
from clonos.status import Phase, SlotState, Status, TaskState

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"


def _diamond() -> Job:
    job = Job("etl", parallelism=2)
    numbers = job.source(values(range(100)), name="numbers")
    even = numbers.filter(lambda number: number % 2 == 0, name="even")
    odd = numbers.filter(lambda number: number % 2, name="odd", parallelism=1)
    even.union(odd).key_by(lambda number: number % 3, name="by_rest").count(name="total").sink(stdout(), name="out")
    return job


def test_objects_of_a_job_have_short_texts() -> None:
    job = _diamond()
    assert repr(job) == "<Job etl: numbers, even, odd, total, out>"
    stream = job.source(values([1]), name="more")
    assert repr(stream) == "<Stream of more in the job etl>"
    assert repr(stream.key_by(str)) == "<KeyedStream of more in the job etl>"
    assert repr(collect()) == "<collect(): 0 rows>"
    assert repr(Job("empty")) == "<Job empty: no steps>"
    result = Result(Ending.FINISHED, 3, "etl-1", Status("etl", Phase.ENDED))
    assert repr(result) == "<Result of the job etl: finished, checkpoint 3>"


def test_the_picture_of_a_job_has_a_box_for_each_step_and_a_line_for_each_exchange() -> None:
    picture = ElementTree.fromstring(_diamond()._repr_html_())
    assert len(picture.findall(f"{SVG}rect")) == 5
    texts = [found.text for found in picture.findall(f"{SVG}text")]
    assert texts == ["by_rest", "by_rest", "numbers", "even", "odd \u00d71", "total", "out"]
    lines = [(float(line.get("x1", "")), float(line.get("x2", ""))) for line in picture.findall(f"{SVG}line")]
    assert len(lines) == 5
    assert all(start < end for start, end in lines)
    boxes = {(box.get("x"), box.get("y")) for box in picture.findall(f"{SVG}rect")}
    assert len(boxes) == 5


class Named(NamedTuple):
    key: str
    number: int


@dataclass
class Plain:
    key: str


@pytest.mark.parametrize(
    ("rows", "head"),
    [
        ([{"a": 1}, {"b": "<x>"}], ["a", "b"]),
        ([Named("a", 1)], ["key", "number"]),
        ([("a", 1)], ["0", "1"]),
        ([Plain("a")], ["key"]),
        ([1, "b", None], ["value"]),
    ],
)
def test_rows_are_a_table_with_a_column_for_each_field(rows: list[Any], head: list[str]) -> None:
    table = ElementTree.fromstring(html_of_rows(rows, "rows"))
    assert [cell.text for cell in table.iter("th")] == head
    assert len(list(table.iter("tr"))) == len(rows) + 1


def test_a_table_shows_the_first_rows_and_the_beginning_of_long_values() -> None:
    table = html_of_rows(["x" * 5_000] * 500, "500 rows")
    assert table.count("<td>") == ROWS_SHOWN
    assert f"500 rows, the first {ROWS_SHOWN}" in table
    assert len(table) < 10_000


def test_the_status_of_a_job_is_a_table_of_its_tasks() -> None:
    tasks = (TaskState("map/0", 1, 7, 123, "d", TaskPhase.LIVE, {}, 1, 0),)
    slots = (SlotState(7, 123, "d", "host-a"),)
    shown = status_html(Status("etl", Phase.RUNNING, checkpoint=4, slots=slots, tasks=tasks))
    assert "etl is running, checkpoint 4" in shown
    assert "<td>map/0</td><td>live</td><td>host-a</td><td>123</td>" in shown


@pytest.mark.processes
def test_the_first_rows_of_a_stream_come_without_its_sinks_and_other_branches() -> None:
    job = _diamond()
    stream: Stream[int] = job.source(values([3, 1, 2]), name="more").map(lambda number: number * 10)
    stream.map(lambda number: 1 // 0).sink(blackhole())
    assert sorted(stream.take()) == [10, 20, 30]
    assert sorted(stream.key_by(str).take(5)) == [10, 20, 30]
    assert repr(job).startswith("<Job etl: numbers, even, odd, total, out, more")


@pytest.mark.processes
def test_a_stream_without_an_end_gives_its_first_rows() -> None:
    class Endless:
        def splits(self, parallelism: int) -> list[bytes]:
            return [b"all"]

        def reader(self) -> EndlessReader:
            return EndlessReader()

    assert Job("endless").source(Endless()).map(lambda number: number * 2).take(5) == [0, 2, 4, 6, 8]


class EndlessReader:
    """Reads 0, 1, 2, ..."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        self._numbers = itertools.count(int.from_bytes(mark or b"", "big"))

    def read(self, records_max: int) -> list[int] | None:
        return list(itertools.islice(self._numbers, min(records_max, 100)))

    def mark(self) -> bytes:
        return int(repr(self._numbers)[6:-1]).to_bytes(8, "big")

    def close(self) -> None: ...


@pytest.mark.processes
def test_records_that_raise_end_the_preview_unless_the_job_has_an_error_output() -> None:
    def preview(**options: Any) -> list[float]:
        return sorted(Job("etl", **options).source(values([1, 0, 4])).map(lambda number: 4 / number).take(5))

    assert preview(errors=collect()) == [1.0, 4.0]
    with pytest.raises(JobCrashed, match="ZeroDivisionError"):
        preview()


@pytest.mark.parametrize("count", [0, -1, "5", True])
def test_a_count_of_rows_below_one_is_refused(count: Any) -> None:
    with pytest.raises(InvalidJob, match="an int of at least 1"):
        Job("etl").source(values([1])).take(count)


def test_a_graph_without_a_job_has_no_first_rows() -> None:
    take: Callable[[], list[int]] = JobGraph("etl").source(values([1])).take
    with pytest.raises(InvalidJob, match="Create the stream from a Job"):
        take()


@pytest.mark.processes
def test_a_peek_shows_the_next_rows_of_a_step_of_a_running_job(tmp_path: Path) -> None:
    def work(number: int) -> dict[str, int]:
        return {"n": number, "sum": sum(range(20_000))}  # so that the job runs until the test stops it

    job = Job("watched", slots="process", store=str(tmp_path / "store"))
    slow = job.source(values(range(1_000_000), ordered=False), name="numbers").map(work, name="slow")
    slow.key_by(lambda row: row["n"] % 2).count(name="count").sink(blackhole(), name="out")
    with job.start() as handle:
        rows = handle.peek("slow", 3, timeout=60.0)
        assert 1 <= len(rows) <= 3
        assert all(set(row) == {"n", "sum"} for row in rows)
        assert all(key in (0, 1) for key, _ in handle.peek("count", timeout=60.0))
        with pytest.raises(JobError, match="no step 'out' that emits rows; it has numbers, slow, count"):
            handle.peek("out")
        with pytest.raises(JobError, match="an int of at least 1"):
            handle.peek("slow", 0)
        handle.stop(drain=False)
        handle.wait()
        assert handle.peek("slow") == []

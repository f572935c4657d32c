"""Order of records: sources are read in order where a step depends on it, and the plan names the step that ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.api.windows import Session, Tumbling
from clonos.connectors import collect, files, values
from clonos.connectors.connector_errors import InvalidConnector
from clonos.core.model.options import Options
from clonos.operators.job_image import JobImage
from tests.unit.connectors.reading import as_rows, read_piecewise, read_split

TASKS = 4
ROWS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows as JSON lines of several blocks, and as Parquet of several row groups."""
    made = tmp_path_factory.mktemp("input")
    rows = [{"user": number % 7, "n": number, "text": "x" * 20} for number in range(ROWS)]
    (made / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), made / "x.parquet", row_group_size=3_000)
    return made


class Unordered:
    """A process function, which may do anything with the order of its records."""

    def process(self, value: Any, context: Any) -> None:
        """Emits the record."""
        context.emit(value)


def _identity(value: Any) -> Any:
    return value


SENSITIVE: dict[str, Callable[[Stream[Any]], Any]] = {
    "a stateful step": lambda rows: rows.key_by("user").stateful_map(lambda _, state, row: (row, row)),
    "calls with state": lambda rows: (
        rows.key_by("user").stateful_map_async(lambda _, state, row: (row, row)).key_by("user").count()
    ),
    "a process function": lambda rows: rows.filter(bool).process(Unordered),
    "a keyed process function": lambda rows: rows.key_by("user").process(Unordered),
    "a reduction": lambda rows: rows.key_by("user").reduce(lambda first, later: later),
    "a reduction of a window": lambda rows: rows.key_by("user").window(Tumbling("1s")).reduce(lambda _, row: row),
    "sessions of a maximum length": lambda rows: (
        rows.key_by("user").window(Session("1s", max_length="9s", time="processing")).count()
    ),
    "an accumulator": lambda rows: rows.key_by("user").window(Tumbling("1s")).aggregate(list, list.append),
    "a sink": lambda rows: rows.map(_identity),
    "a keyed sink": lambda rows: rows.key_by("user"),
    "effects": lambda rows: rows.map(_identity, effects=True).key_by("user").count(),
    "a stateful step beside a count": lambda rows: (rows.key_by("user").count(), rows.map(_identity))[1],
}
FREE: dict[str, Callable[[Stream[Any]], Any]] = {
    "a count": lambda rows: rows.key_by("user").count(),
    "a count after maps": lambda rows: (
        rows.map(_identity).filter(bool).flat_map(lambda row: [row]).key_by("user").count()
    ),
    "a count of a window": lambda rows: rows.key_by("user").window(Tumbling("1s")).count(),
    "a count of sessions": lambda rows: rows.key_by("user").window(Session("1s")).count(),
    "a sum of a window": lambda rows: rows.key_by("user").window(Tumbling("1s")).sum("n"),
    "what follows a count": lambda rows: rows.key_by("user").count().map(_identity),
}


def compiled(source: Any, steps: Callable[[Stream[Any]], Any]) -> JobImage:
    graph = JobGraph("ordered")
    steps(graph.source(source, name="rows")).sink(collect())
    return graph.compile(Options(), parallelism=TASKS)


@pytest.mark.parametrize("what", SENSITIVE)
@pytest.mark.parametrize("kind", ["jsonl", "lines", "parquet", "values"])
def test_a_file_is_one_split_where_a_step_depends_on_the_order(folder: Path, kind: str, what: str) -> None:
    assert len(compiled(source_of(folder, kind), SENSITIVE[what]).splits["rows"]) == 1


@pytest.mark.parametrize("what", FREE)
@pytest.mark.parametrize("kind", ["jsonl", "lines", "parquet", "values"])
def test_a_file_is_cut_where_only_aggregates_without_order_follow(folder: Path, kind: str, what: str) -> None:
    image = compiled(source_of(folder, kind), FREE[what])
    assert len(image.splits["rows"]) >= TASKS
    assert image.order.few_tasks == ()


def timed(rows: Stream[Any]) -> Stream[Any]:
    return rows.map(_identity).with_timestamps(Timestamps("n", unit="s"))


@pytest.mark.parametrize("kind", ["jsonl", "lines", "parquet", "values"])
@pytest.mark.parametrize("is_given_by_source", [True, False])
def test_a_file_is_one_split_where_the_stream_has_timestamps(folder: Path, kind: str, is_given_by_source: bool) -> None:
    """Blocks of a file would each have their own watermark: results would be late, and which records are would vary."""

    def build(source: Any) -> JobImage:
        graph = JobGraph("ordered")
        rows = graph.source(source, name="rows", timestamps=Timestamps("n", unit="s") if is_given_by_source else None)
        counts = (rows if is_given_by_source else timed(rows)).key_by("user").window(Tumbling("1s")).count()
        counts.sink(collect())
        return graph.compile(Options(), parallelism=TASKS)

    image = build(source_of(folder, kind))
    assert len(image.splits["rows"]) == 1
    (note,) = image.order.few_tasks
    assert "is read by 1 of 4 tasks, so that its order is kept; ordered=False" in note
    assert len(build(source_of(folder, kind, ordered=False)).splits["rows"]) >= TASKS


def source_of(folder: Path, kind: str, **options: Any) -> Any:
    match kind:
        case "jsonl":
            return files.jsonl(folder / "x.jsonl", **options)
        case "lines":
            return files.lines(folder / "x.jsonl", **options)
        case "parquet":
            return files.parquet(folder / "x.parquet", **options)
        case _:
            return values([{"user": number % 7, "n": number} for number in range(ROWS)], **options)


BLOCKS = "is read by 1 of 4 tasks, so that its order is kept; ordered=False reads it in blocks, in any order"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("jsonl", f"x.jsonl {BLOCKS}"),
        ("lines", f"x.jsonl {BLOCKS}"),
        ("parquet", f"x.parquet {BLOCKS}"),
        (
            "values",
            "values is read by 1 of 4 tasks, so that its order is kept; ordered=False deals it to all, in any order",
        ),
    ],
)
def test_the_job_reports_that_fewer_tasks_read_and_how_to_change_that(folder: Path, kind: str, sentence: str) -> None:
    steps = SENSITIVE["a stateful step"]
    assert compiled(source_of(folder, kind), steps).order.few_tasks == (sentence,)
    in_parallel = compiled(source_of(folder, kind, ordered=False), steps)
    assert len(in_parallel.splits["rows"]) >= TASKS
    assert in_parallel.order.few_tasks == ()
    in_order = compiled(source_of(folder, kind, ordered=True), FREE["a count"])
    assert len(in_order.splits["rows"]) == 1
    assert in_order.order.few_tasks == ()


def test_a_small_input_is_not_worth_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "small.txt").write_text("a\nb\n")
    for source in (files.lines(tmp_path / "small.txt"), values(range(100))):
        assert compiled(source, SENSITIVE["a sink"]).order.few_tasks == ()


def test_enough_files_for_all_tasks_need_no_sentence(tmp_path: Path) -> None:
    for number in range(TASKS):
        (tmp_path / f"{number}.txt").write_text("line\n" * 50_000)
    image = compiled(files.lines(tmp_path), SENSITIVE["a sink"])
    assert len(image.splits["rows"]) == TASKS
    assert image.order.few_tasks == ()


def test_a_size_of_blocks_asks_for_blocks(folder: Path) -> None:
    source = files.lines(folder / "x.jsonl", block_bytes=1 << 17)
    assert len(compiled(source, SENSITIVE["a stateful step"]).splits["rows"]) > 1
    with pytest.raises(InvalidConnector, match="ordered=True reads whole files"):
        files.jsonl(folder / "x.jsonl", block_bytes=1, ordered=True)
    assert len(compiled(values(range(9), splits=3), SENSITIVE["a sink"]).splits["rows"]) == 3
    with pytest.raises(InvalidConnector, match="ordered=True reads the list as one split"):
        values(range(9), splits=3, ordered=True)


def test_files_that_are_found_later_are_whole_too(tmp_path: Path) -> None:
    graph = JobGraph("watching")
    graph.source(files.lines(tmp_path, watch="1s"), name="rows").process(Unordered).sink(collect())
    image = graph.compile(Options(), parallelism=TASKS)
    (tmp_path / "late.txt").write_text("line\n" * 50_000)
    source = image.vertices[0].nodes[0].make.args[1]  # type: ignore[attr-defined]
    found = [split for index in range(TASKS) for split in source.discover([], index, TASKS)]
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "values"])
@pytest.mark.parametrize("sizes", [[20_000], [1, 4_500, 7], [2_999, 1, 3_000]])
def test_a_split_in_order_gives_the_records_in_order_from_every_mark(folder: Path, kind: str, sizes: list[int]) -> None:
    source = source_of(folder, kind, ordered=True)
    (split,) = source.splits(TASKS)
    assert [row["n"] for row in read_split(source.reader(), split)] == list(range(ROWS))
    pieces = read_piecewise(source, split, sizes)
    taken = [row["n"] for piece, _ in zip(pieces, range(40), strict=False) for row in as_rows(piece)]
    assert taken == list(range(len(taken)))
    assert len(taken) >= 40


def ends(steps: Callable[[Stream[Any]], Any]) -> str:
    (sentence,) = compiled(values([{"user": 1}]), steps).order.ends
    return sentence.removeprefix("the order of rows: each key sees the records of a split in their order")


ENDS: list[tuple[Callable[[Stream[Any]], Any], str]] = [
    (lambda rows: rows.map(_identity), ", in all steps"),
    (lambda rows: rows.key_by("user").process(Unordered), ", in all steps"),
    (lambda rows: rows.rebalance().map(_identity, name="spread"), ", up to spread (rebalance)"),
    (lambda rows: rows.rebalance().process(Unordered, name="one", parallelism=1), ", in all steps"),
    (lambda rows: rows.map(_identity, parallelism=2, name="two"), ", up to two (4 tasks before it, 2 of its own)"),
    (
        lambda rows: rows.key_by("user").count().key_by(lambda row: row[1]).process(Unordered, name="again"),
        ", up to again (it is keyed again)",
    ),
    (
        lambda rows: rows.map_async(_identity, ordered=False, name="ask").key_by("user").process(Unordered),
        ", up to ask (ordered=False)",
    ),
    (lambda rows: rows.map_async(_identity), ", in all steps"),
    (
        lambda rows: rows.key_by("user").stateful_map_async(lambda _, state, row: (row, row), name="ask"),
        ", up to ask (results of other keys overtake)",
    ),
    (
        lambda rows: rows.map(_identity, name="same").key_by("user").lag(1, name="before"),
        ", in all steps",
    ),
    (lambda rows: rows.union(rows.rebalance().map(_identity, name="r")), ", up to r (rebalance)"),
    (lambda rows: rows.broadcast().map(_identity), ", in all steps"),
    (
        lambda rows: rows.key_by("user").process(Unordered).broadcast().map(_identity, name="all"),
        ", up to all (broadcast)",
    ),
]


@pytest.mark.parametrize("number", range(len(ENDS)))
def test_the_plan_names_the_step_that_ends_the_order(number: int) -> None:
    steps, expected = ENDS[number]
    assert ends(steps) == expected

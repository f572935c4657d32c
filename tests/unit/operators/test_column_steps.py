"""select, with_columns, filter, drop and rename in a job: their plan, their timestamps, and records that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet
import pytest

from clonos import Expr, col, files, lit, when
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import ColumnsNeeded, InvalidJob
from clonos.api.plan.explaining import explained
from clonos.api.stream import Stream
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.expressions.expression_errors import InvalidExpression, NotComputable
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.samples import ColumnsGiven, UnknownGiven

RECORDS: list[dict[str, Any]] = [
    {"n": number, "text": str(number) if number % 3 else "x", "at": 1_700_000_000 + number} for number in range(20)
]


def results(
    build: Any, records: list[dict[str, Any]] = RECORDS, parallelism: int = 2, errors: Outbox | None = None
) -> dict[str, list[Any]]:
    """Returns what a job makes of the records, by sink; its order depends on the parallelism only."""
    graph = JobGraph("job", errors=errors)
    build(graph.source(ColumnsGiven(records))).map(lambda row: row).sink(Outbox(), name="results")
    written = run(graph, parallelism).written
    named = {("errors" if name == "errors" else "results"): rows for name, rows in written.items()}
    return {"results": [], **named}


def test_steps_compute_choose_and_name_columns() -> None:
    found = results(
        lambda stream: (
            stream.filter(col("n") % 2 == 0)
            .with_columns(double=col("n") * 2, text=col("text").str.len_chars())
            .rename({"text": "length"})
            .drop("at")
            .select("double", (col("length") + 1).alias("more"), constant=lit("c"))
            .filter(col("double") > 30)
        ),
        parallelism=1,
    )
    assert found["results"] == [
        {"double": 32, "more": 3, "constant": "c"},
        {"double": 36, "more": 2, "constant": "c"},
    ]


def test_expressions_of_other_libraries_are_taken() -> None:
    polars = pytest.importorskip("polars")
    found = results(
        lambda stream: (
            stream.filter(compute.field("n") >= 18)
            .with_columns(polars.col("text").str.to_uppercase(), half=compute.field("n") / lit_of_arrow(2))
            .select("text", "half", polars.col("n") + 1)
        ),
        parallelism=1,
    )
    assert found["results"] == [{"text": "X", "half": 9, "n": 19}, {"text": "19", "half": 9, "n": 20}]


def lit_of_arrow(value: int) -> Any:
    """Returns a constant of pyarrow."""
    return compute.scalar(value)


@pytest.mark.parametrize("records_max", [1, 7])
def test_a_record_that_cannot_be_computed_goes_to_the_error_output_alone(records_max: int) -> None:
    graph = JobGraph("job", errors=Outbox())
    stream = graph.source(ColumnsGiven(RECORDS)).filter(col("n") < 8, name="small")
    stream.with_columns(col("text").cast(int), name="parsed").select("text", name="chosen").sink(Outbox(), name="out")
    written = run(graph, 1, records_max).written
    errors = written.pop("errors")
    assert [(error.step, error.record["n"]) for error in errors] == [("parsed", 0), ("parsed", 3), ("parsed", 6)]
    assert errors[0].error == "NotComputable: col('text').cast(int): 'x' is no int64"
    assert list(written.values()) == [[{"text": number} for number in (1, 2, 4, 5, 7)]]


def test_a_record_that_cannot_be_computed_may_have_an_instant_that_python_has_not(tmp_path: Path) -> None:
    far = pyarrow.array([0, 1 << 60], pyarrow.timestamp("us"))
    pyarrow.parquet.write_table(pyarrow.table({"n": pyarrow.array([1, 1 << 62]), "at": far}), tmp_path / "1.parquet")
    graph = JobGraph("job", errors=Outbox())
    graph.source(files.parquet(str(tmp_path / "1.parquet"))).select(col("n") * 4, "at").sink(Outbox(), name="out")
    written = run(graph, 1, 9).written
    (error,) = written.pop("errors")
    assert (error.record["n"], str(1 << 60) in error.record["at"]) == (1 << 62, True)
    assert [row["n"] for rows in written.values() for row in rows] == [4]


def test_a_record_that_cannot_be_computed_fails_the_task_with_its_step_and_itself() -> None:
    graph = JobGraph("job")
    stream = graph.source(ColumnsGiven(RECORDS[1:])).filter(col("n") > 2, name="some")
    stream.select(col("text").cast(int), "n", name="parsed").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    with pytest.raises(StepFailed) as raised:
        job.finish()
    job.close()
    assert (raised.value.at.step, raised.value.at.record) == ("parsed", str(RECORDS[3]))
    assert isinstance(raised.value.__cause__, NotComputable)


def test_a_column_that_no_batch_has_fails_the_task_with_what_there_is() -> None:
    graph = JobGraph("job")
    graph.source(UnknownGiven(RECORDS)).filter(col("n") > 2).select("txet", name="chosen").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    with pytest.raises(StepFailed) as raised:
        job.finish()
    job.close()
    assert raised.value.at.step == "chosen"
    assert str(raised.value.__cause__) == (
        "the step chosen cannot compute col('txet'): there is no column 'txet' (Did you mean text?)."
        " Its input has the columns n: int64, text: string, at: int64."
    )


def test_a_look_at_a_step_in_the_middle_shows_its_rows_and_changes_no_result() -> None:
    graph = JobGraph("job")
    stream = graph.source(ColumnsGiven(RECORDS)).filter(col("n") > 5, name="large")
    stream.with_columns(m=col("n") + 1, name="more").select("m", name="chosen").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    shown: list[bytes] = []
    job.chains[0].peek("more", 100, shown.append)
    job.finish()
    job.close()
    assert len(shown) == 1
    assert list(job.written.values()) == [[{"m": number + 1} for number in range(6, 20)]]


def test_a_stream_of_rows_is_refused_where_the_step_is_added() -> None:
    graph = JobGraph("job")
    rows = graph.source(Given([{"n": 1}]))
    for add in (
        lambda: rows.select("n"),
        lambda: rows.with_columns(m=col("n")),
        lambda: rows.filter(col("n") > 1),
        lambda: rows.drop("n"),
        lambda: rows.rename({"n": "m"}),
    ):
        with pytest.raises(ColumnsNeeded, match=r"works on columns, and source gives it rows\. Columns come from"):
            add()


# --- timestamps


def timed(graph: JobGraph) -> Stream[Any]:
    """Returns a stream of columns with timestamps in the column "at"."""
    return graph.source(ColumnsGiven(RECORDS), timestamps=Timestamps("at"))


def windows(build: Any) -> list[Any]:
    """Returns the counts of windows of 10 s over a stream with timestamps and some steps."""
    from clonos import Tumbling

    graph = JobGraph("job")
    stream = build(timed(graph))
    stream.key_by(lambda row: 0).window(Tumbling("10s")).count().map(lambda each: each.value).sink(Outbox(), name="out")
    (rows,) = run(graph, 1).written.values()
    return rows


def test_timestamps_follow_their_column_under_any_name() -> None:
    for build in (
        lambda stream: stream.map_batches(lambda batch: batch),
        lambda stream: stream.filter(col("n") >= 0).with_columns(m=col("n")),
        lambda stream: stream.rename({"at": "then"}),
        lambda stream: stream.select("n", then="at"),
        lambda stream: stream.select(col("at").alias("then")).with_columns(col("then"), at=lit("x")),
    ):
        assert windows(build) == [10, 10]


def test_a_step_that_replaces_the_column_of_timestamps_is_refused() -> None:
    builds: list[Callable[[Stream[Any]], Stream[Any]]] = [
        lambda stream: stream.with_columns(at=col("at") + 1),
        lambda stream: stream.select("n", col("at") * 2),
        lambda stream: stream.rename({"n": "at", "at": "n"}).with_columns(n=col("n") + 1),
    ]
    for build in builds:
        with pytest.raises(InvalidJob, match=r"computes the column '(at|n)' anew, which has the timestamps"):
            build(timed(JobGraph("job")))


def test_timestamps_are_left_out_in_front_of_a_sink_only() -> None:
    graph = JobGraph("job")
    timed(graph).select("n", name="chosen").filter(col("n") > 17).sink(Outbox())
    assert list(run(graph, 1).written.values()) == [[{"n": 18}, {"n": 19}]]
    refused = JobGraph("job")
    timed(refused).drop("at", name="chosen").filter(col("n") > 17).map(str, name="shown").sink(Outbox())
    with pytest.raises(InvalidJob, match=r"chosen leaves out the column 'at', .* and shown may need them"):
        refused.compile(Options())


# --- plans over files


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder with one file of Parquet."""
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(RECORDS), tmp_path / "a.parquet")
    return str(tmp_path)


def test_a_wrong_column_or_type_of_a_file_is_refused_where_the_step_is_added(folder: str) -> None:
    stream = JobGraph("job").source(files.parquet(folder)).with_columns(m=col("n") + 1)
    refused: list[tuple[Expr, str]] = [
        (col("txt"), "there is no column 'txt' (Did you mean text?)"),
        (col("text") + 1, "string + int32 is not defined; cast the text to a number"),
        (col("text") > 1, "string and int32 have no common type: cast one of them"),
        (col("n").str.len_chars(), "it needs a text and gets int64; cast it with cast(str)"),
        (when(col("n")).then(1), "it needs a condition and gets int64; compare it, as in (...) != 0"),
        (when(col("m") > 1).then(lit("x")).otherwise(col("n")), "have no common type: cast one of them"),
        (col("text").str.contains("("), "the pattern is no regular expression of RE2: missing )"),
        (col("n").dt.year(), "it needs a date or timestamp and gets int64"),
        (col("text").cast(bool), "a cast from string to bool is not defined"),
        (col("text").is_in([1]), "the list has 1: string and int32 have no common type"),
    ]
    for expression, problem in refused:
        with pytest.raises(InvalidExpression) as raised:
            stream.select(expression, name="chosen")
        text = str(raised.value)
        assert text.startswith("the step chosen cannot compute ")
        assert problem in text
        assert text.endswith("Its input has the columns n: int64, text: string, at: int64, m: int64.")
    with pytest.raises(InvalidExpression, match=r"cannot compute drop\('m'\): there is no column 'm'"):
        stream.drop("m").drop("m")


def test_explain_shows_expressions_and_the_columns_after_each_step(folder: str) -> None:
    graph = JobGraph("job")
    stream = graph.source(files.parquet(folder, columns=["n", "text"])).filter(col("n") > 3)
    stream.select("text", double=col("n") * 2.5, name="chosen").rename({"text": "t"}).sink(Outbox())
    text = explained(graph, Options(), 1, "text")
    for line in (
        "filter: filter col('n') > 3",
        "chosen: select col('text'), double=col('n') * 2.5",
        "rename: rename 'text': 't'",
        "schema      source: n: int64, text: string",
        "schema      chosen: text: string, double: double",
        "schema      rename: t: string, double: double",
    ):
        assert line in text


def test_files_that_do_not_exist_yet_leave_the_types_to_the_first_batch(tmp_path: Path) -> None:
    graph = JobGraph("job")
    graph.source(files.parquet(str(tmp_path / "later"))).select(col("anything") + 1).sink(Outbox())

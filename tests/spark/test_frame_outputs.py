"""What a job puts out, and its state, as DataFrames."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from clonos.connectors import collect, files, values
from clonos.connectors.connector_errors import InputMissing, InvalidConnector
from clonos.io.store.store import NothingToResume
from clonos.job import Job
from clonos.spark import frames
from tests.unit.connectors.writing import JOB, part_of

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

SINKS: dict[str, Callable[[Path], Any]] = {
    "parquet": files.parquet,
    "arrow": files.arrow,
    "jsonl": files.jsonl,
    "csv": files.csv,
}
ATTEMPTS = 5


@pytest.fixture
def spark(context: SparkContext) -> SparkSession:
    return SparkSession(context)


def _rows(number: int) -> list[dict[str, Any]]:
    return [{"n": number, "word": f"a, {number}"}, {"n": number + 1, "word": 'b"'}]


@pytest.mark.parametrize("kind", SINKS)
def test_committed_rows_and_no_others_become_a_dataframe(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    sink = SINKS[kind](tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    assert frames.read(spark, tmp_path / "out").count() == 0
    for checkpoint in (1, 2):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, _rows(10 * checkpoint))])
    part_of(sink, 3, _rows(99))
    found = sorted(row.asDict()["n"] for row in frames.read(spark, tmp_path / "out").collect())
    assert found == [10, 11, 20, 21]
    words = frames.read(spark, tmp_path / "out", schema="word STRING, missing INT").collect()
    assert sorted(map(tuple, words)) == [("a, 10", None), ("a, 20", None), ('b"', None), ('b"', None)]


def test_parts_with_different_types_become_a_dataframe_with_types_for_all(spark: SparkSession, tmp_path: Path) -> None:
    sink = files.parquet(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    for checkpoint, row in enumerate([{"n": None}, {"n": 1}, {"n": 2.5, "word": "w"}], 1):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [row])])
    found = frames.read(spark, tmp_path / "out").orderBy("n").collect()
    assert list(map(tuple, found)) == [(None, None), (1.0, None), (2.5, "w")]


def test_an_output_that_does_not_exist_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="out"):
        frames.read(spark, tmp_path / "out")


def _follow(spark: SparkSession, folder: Path) -> None:
    """Runs a query over what is new in the output; raises what it fails with."""
    for attempt in range(ATTEMPTS):
        stream = spark.readStream.format("clonos").load(str(folder / "out"))
        writer = stream.writeStream.format("parquet").option("path", str(folder / "got"))
        query = writer.option("checkpointLocation", str(folder / "query")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            return
        except PySparkException as error:
            # Spark gives its process for a stream 10 s to start, too few on a busy machine.
            if "failed to connect back" not in str(error) or attempt == ATTEMPTS - 1:
                raise


@pytest.mark.timeout(150)
def test_a_stream_follows_the_committed_rows_and_notices_that_some_were_withdrawn(
    spark: SparkSession, tmp_path: Path
) -> None:
    frames.register(spark)
    sink = files.parquet(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    for checkpoint in (1, 2):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, _rows(10 * checkpoint))])
        _follow(spark, tmp_path)
        got = sorted(row["n"] for row in spark.read.parquet(str(tmp_path / "got")).collect())
        assert got == [10, 11, 20, 21][: 2 * checkpoint]
    sink.roll_back(JOB, 1)
    sink.commit(JOB, 3, [part_of(sink, 3, _rows(30))])
    with pytest.raises(PySparkException, match="no longer has what this stream has read of it up to checkpoint 2"):
        _follow(spark, tmp_path)


def test_a_job_ends_as_a_dataframe_and_its_state_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    job = Job("totals", slots="process", parallelism=2, store=tmp_path / "store")
    orders = job.source(frames.source(spark.range(100).selectExpr("id % 5 AS customer", "id AS cents")), name="read")
    orders.key_by("customer").count(name="columns").sink(files.parquet(tmp_path / "out"), name="out")
    rows = orders.map(lambda order: (order["customer"], order["cents"]), name="pair")
    rows.key_by(lambda order: order[0]).count(name="rows").sink(files.jsonl(tmp_path / "rows"), name="counts")
    found = job.to_dataframe(spark, step="out").groupBy("customer").max("count").collect()
    assert dict(map(tuple, found)) == dict.fromkeys(range(5), 20)
    state = frames.state(spark, tmp_path / "store", "columns").where("state = 'totals'").collect()
    assert {json.loads(row["key"]): json.loads(row["value"]) for row in state} == {n: {"count.n": 20} for n in range(5)}
    counts = frames.state(spark, tmp_path / "store", "rows").collect()
    assert {json.loads(row["key"]): json.loads(row["value"]) for row in counts} == dict.fromkeys(range(5), 20)
    assert {row["task"] for row in counts} <= {"rows/0", "rows/1"}


def test_the_coupons_recipe_gives_each_lucky_order_one_coupon(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    orders = spark.range(400).selectExpr("id AS number", "id * 25 AS cents")
    coupons = importlib.import_module("spark_coupons").drawn(orders).collect()
    numbers = [row["number"] for row in coupons]
    assert 10 < len(numbers) < 190
    assert len(set(numbers)) == len(numbers) == len({row["coupon"] for row in coupons})
    assert min(numbers) >= 200


def test_a_job_without_one_output_of_files_becomes_no_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    job = Job("none", slots="process", store=tmp_path / "store")
    numbers = job.source(values([1]), name="read")
    numbers.sink(collect(), name="list")
    with pytest.raises(InvalidConnector, match="the job none writes no files"):
        job.to_dataframe(spark)
    for name in ("a", "b"):
        numbers.map(lambda number: {"n": number}, name=f"row-{name}").sink(files.jsonl(tmp_path / name), name=name)
    with pytest.raises(InvalidConnector, match="has 2 outputs of files: a, b"):
        job.to_dataframe(spark)
    with pytest.raises(InvalidConnector, match="has no output of files 'c'; it has a, b"):
        job.to_dataframe(spark, step="c")


def test_state_that_does_not_exist_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NothingToResume, match="it has no job"):
        frames.state(spark, tmp_path / "store", "count")

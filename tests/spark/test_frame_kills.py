"""DataFrames as input of jobs and as their output, while executors, workers of Spark and tasks die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as functions_of_spark

from clonos.connectors import files
from clonos.connectors.connector_errors import InvalidConnector
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.demo.kills import executor_pids, is_live
from clonos.job import Handle, Job
from clonos.spark import frames
from clonos.status import Status
from tests.speed import scaled

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

LIMIT_S = scaled(120.0)
PAUSE_S = 0.02
"""Pause before a row that is not allowed yet."""
PARTITIONS = 4
ROWS = 4_000
ROWS_PER_BATCH = 100
LAST_BATCH = 4


@pytest.fixture
def spark(context: SparkContext) -> SparkSession:
    return SparkSession(context)


class Reading:
    """read a DataFrame -> slow down each row until a file allows it -> files."""

    def __init__(self, folder: Path, frame: DataFrame, **options: Any) -> None:
        self.folder = folder
        self.allow(0)
        # Short steps: a barrier waits for the end of one, and a replay repeats its pauses.
        self.job = Job(
            "reading",
            parallelism=2,
            store=folder / "store",
            checkpoint_every="200ms",
            step_records_first=4,
            step_records_max=16,
            **options,
        )
        rows = self.job.source(frames.source(frame), name="read").map(_slowed(str(folder / "allowed")))
        rows.sink(files.parquet(folder / "out"), name="out")

    def allow(self, count: int) -> None:
        """Lets the first rows of each partition pass without a pause."""
        new = self.folder / "allowed.new"
        new.write_text(f"{count}", "utf-8")
        new.rename(self.folder / "allowed")

    def written(self) -> list[dict[str, Any]]:
        """What Spark wrote for the job, which draws other numbers each time."""
        parts = (self.folder / "store" / "frames").glob("*/*.parquet")
        return _by_number([row for part in parts for row in pyarrow.parquet.read_table(part).to_pylist()])

    def output(self) -> list[dict[str, Any]]:
        """Committed rows."""
        return _by_number(list(files.read_committed(self.folder / "out")))


def _slowed(path: str) -> Callable[[Any], Any]:
    """Gives a step that never waits without end, because such a step would take no barrier."""

    def slow_down(row: Any) -> Any:
        # clonos: ok CLN301 it delays the row and does not change it
        if int(Path(path).read_text("utf-8")) <= row["n"] % (ROWS // PARTITIONS):
            threading.Event().wait(PAUSE_S)
        return row

    return slow_down


def _by_number(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["n"]))


def _drawn(spark: SparkSession) -> DataFrame:
    """Rows with a random number, which another evaluation draws anew."""
    numbers = spark.range(0, ROWS, 1, PARTITIONS).withColumnRenamed("id", "n")
    return numbers.withColumn("draw", functions_of_spark.rand())


def _await(handle: Handle, condition: Callable[[Status], Any]) -> Status:
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        if condition(status := handle.status()):
            return status
        waiting.wait(0.02)
    raise AssertionError(handle.status())


def _dying_once(marker: Path, kills_executor: bool) -> Callable[[Any], Any]:
    """A function that kills its process, or the executor of it, the first time that it is called."""
    path, root = str(marker), str(Path(__file__).parents[2])

    def pass_on(row: Any) -> Any:
        import os
        import signal
        import sys

        if not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT))
            sys.path.append(root)
            from clonos.demo.kills import executor_pids

            for pid in executor_pids([os.getpid()]) if kills_executor else [os.getpid()]:
                os.kill(pid, signal.SIGKILL)
        return row

    return pass_on


@pytest.mark.timeout(300)
def test_each_row_of_a_dataframe_is_read_once_after_a_reader_and_its_executor_died(
    spark: SparkSession, tmp_path: Path
) -> None:
    reading = Reading(tmp_path, _drawn(spark), spare_slots=2)
    with reading.job.start(spark=spark) as handle:
        status = _await(handle, lambda now: is_live(now) and all(task.standbys for task in now.tasks))
        reading.allow(ROWS // PARTITIONS // 4)
        victim = status.tasks[0]
        os.kill(victim.pid, signal.SIGKILL)
        status = _await(handle, lambda now: now.recoveries and is_live(now))
        reading.allow(ROWS // PARTITIONS // 2)
        domain = status.tasks[0].domain
        (executor,) = executor_pids([slot.pid for slot in status.slots if slot.domain == domain])
        known = len(status.recoveries)
        os.kill(executor, signal.SIGKILL)
        _await(handle, lambda now: len(now.recoveries) > known and is_live(now))
        reading.allow(ROWS)
        assert handle.wait(LIMIT_S).ending is Ending.FINISHED
    assert reading.output() == reading.written()
    assert [row["n"] for row in reading.output()] == list(range(ROWS))


def test_a_resumed_job_reads_the_rows_of_its_first_start_and_computes_no_dataframe(
    spark: SparkSession, tmp_path: Path
) -> None:
    reading = Reading(tmp_path, _drawn(spark), slots="process")
    reading.allow(ROWS // PARTITIONS // 2)
    with reading.job.start() as handle:
        _await(handle, lambda now: is_live(now) and any(task.counters.get("records_in") for task in now.tasks))
        handle.stop(drain=False)
        handle.wait(LIMIT_S)
    refused = spark.range(1).select(functions_of_spark.raise_error("it is computed").alias("n"))
    resumed = Reading(tmp_path, refused, slots="process")
    resumed.allow(ROWS)
    assert resumed.job.run(resume=True).ending is Ending.FINISHED
    assert resumed.output() == resumed.written()
    assert [row["n"] for row in resumed.output()] == list(range(ROWS))


@pytest.mark.timeout(300)
def test_a_start_whose_executor_died_while_it_wrote_leaves_nothing_and_the_next_start_reads_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers = spark.sparkContext.parallelize(range(ROWS), PARTITIONS)
    dying = numbers.map(_dying_once(tmp_path / "died", kills_executor=True)).map(lambda number: (number, 0.5))
    reading = Reading(tmp_path, spark.createDataFrame(dying, "n BIGINT, draw DOUBLE"), slots="process")
    reading.allow(ROWS)
    with pytest.raises(frames.FrameFailed, match=r"frames\.source: Spark could not write the DataFrame"):
        reading.job.start()
    assert not (tmp_path / "store").exists()
    assert reading.job.run().ending is Ending.FINISHED
    assert [row["n"] for row in reading.output()] == list(range(ROWS))


class Feeding:
    """A streaming query that feeds a folder, and fails where it is told to; a job that watches the folder."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.spark = folder, spark
        self.fed = threading.Event()
        self._has_failed = False
        self._feed = frames.feed(folder / "arriving")

    def query(self) -> Any:
        """A run of the query, from where the last one ended."""
        stream = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        writer = stream.option("numPartitions", 2).load().writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self.folder / "query")).start()

    def _take(self, frame: DataFrame, batch: int) -> None:
        if batch == 2 and not (self.folder / "died").exists():
            dying = frame.rdd.map(_dying_once(self.folder / "died", kills_executor=False))
            frame = frame.sparkSession.createDataFrame(dying, frame.schema)
        self._feed(frame, batch)
        if batch == 1 and not self._has_failed:
            self._has_failed = True
            raise RuntimeError("the query fails after the commit")
        if batch == LAST_BATCH:
            self.fed.set()

    def job(self) -> Job:
        """A job that reads what arrives."""
        job = Job("fed", slots="process", parallelism=2, checkpoint_every="100ms", store=self.folder / "store")
        rows = job.source(files.parquet(self.folder / "arriving", watch="50ms"), name="read")
        rows.map(lambda row: row["value"], name="value").sink(files.jsonl(self.folder / "out"))
        return job

    def wait_for_output(self) -> None:
        """Until the job has committed all rows that arrived."""
        waiting = threading.Event()
        for _ in range(int(LIMIT_S * 50)):
            arrived = sum(part.rows for part in files.committed(self.folder / "arriving"))
            if (self.folder / "out").exists() and len(self.output()) >= arrived:
                return
            waiting.wait(0.02)
        raise AssertionError(len(self.output()))

    def output(self) -> list[int]:
        """Committed rows of the job."""
        return sorted(files.read_committed(self.folder / "out"))


@pytest.mark.timeout(300)
def test_a_query_feeds_each_batch_once_although_it_repeats_one_and_a_worker_and_a_reader_died(
    spark: SparkSession, tmp_path: Path
) -> None:
    feeding = Feeding(tmp_path, spark)
    with feeding.job().start() as handle:
        with pytest.raises(PySparkException, match="the query fails after the commit"):
            feeding.query().awaitTermination(LIMIT_S)
        feeding.wait_for_output()
        victim = next(task for task in _await(handle, is_live).tasks if task.name.startswith("read"))
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(PySparkException, match="FrameFailed"):
            feeding.query().awaitTermination(LIMIT_S)
        query = feeding.query()
        assert feeding.fed.wait(LIMIT_S)
        query.stop()
        feeding.wait_for_output()
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    parts = files.committed(tmp_path / "arriving")
    batches = {part.checkpoint for part in parts}
    assert batches >= set(range(LAST_BATCH + 1))
    assert feeding.output() == list(range(ROWS_PER_BATCH * len(batches)))
    visible = {path.name for path in (tmp_path / "arriving").iterdir()}
    assert visible == {Path(part.path).name for part in parts}, "nothing of a batch that failed stays"


def test_a_folder_refuses_another_query_and_calls_without_a_query(spark: SparkSession, tmp_path: Path) -> None:
    context, feed = spark.sparkContext, frames.feed(tmp_path / "arriving")
    with pytest.raises(InvalidConnector, match="not called by a streaming query"):
        feed(spark.range(1), 0)
    try:
        context.setLocalProperty("sql.streaming.queryId", "one")
        feed(spark.range(1), 0)
        context.setLocalProperty("sql.streaming.queryId", "two")
        with pytest.raises(InvalidConnector, match="is fed by query-one, and this is query-two"):
            frames.feed(tmp_path / "arriving")(spark.range(1), 0)
    finally:
        context.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]  # it removes the property
    assert list(files.read_committed(tmp_path / "arriving")) == [{"id": 0}]


def test_source_refuses_a_stream_and_columns_without_an_arrow_type(spark: SparkSession) -> None:
    with pytest.raises(InvalidConnector, match=r"it takes a DataFrame of Spark, not builtins\.list"):
        frames.source([1, 2])  # type: ignore[arg-type]
    with pytest.raises(InvalidConnector, match="is a stream, which never ends"):
        frames.source(spark.readStream.format("rate").load())
    with pytest.raises(InvalidConnector, match="two columns with the name 'id'"):
        frames.source(spark.range(1).select("id", "id"))
    with pytest.raises(InvalidConnector, match="has no columns"):
        frames.source(spark.range(1).select())
    with pytest.raises(InvalidConnector, match="cannot become columns"):
        frames.source(spark.sql("SELECT make_interval(1, 2) AS i"))


def test_a_dataframe_without_rows_gives_a_job_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    job = Job("empty", slots="process", store=tmp_path / "store")
    job.source(frames.source(spark.range(0)), name="read").sink(files.parquet(tmp_path / "out"))
    assert job.to_dataframe(spark).count() == 0


def test_an_error_of_the_dataframe_is_named_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    failing = spark.range(1).select(functions_of_spark.raise_error("no such order").alias("n"))
    job = Job("failing", slots="process", store=tmp_path / "store")
    job.source(frames.source(failing), name="read").sink(files.parquet(tmp_path / "out"))
    with pytest.raises(frames.FrameFailed, match="no such order"):
        job.run()
    assert list(tmp_path.iterdir()) == []

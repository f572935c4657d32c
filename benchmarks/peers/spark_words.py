"""Word count in Spark Structured Streaming on two cores: ``python -m ... FOLDER REPEATS LINES native|arrow|udf|state``.

Files of lines as a stream, several a micro-batch, so that one lasts about a second; state in RocksDB with changelog,
two shuffle partitions, checkpoints on. Each batch gives the changed counts. The first two batches are not timed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import ArrayType, StringType

from benchmarks.peers.peer_io import line_files, print_result
from benchmarks.workloads.words import WORDS_A_LINE, Workload

FILES_A_BATCH = {"native": 4, "arrow": 3, "udf": 2, "state": 2}  # of half a million words
BATCHES_WARM = {"state": 1}
BATCHES_WARM_USUAL = 2
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.memory": "2g",
}


def split_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Splits lines into words, for ``mapInArrow``."""
    for batch in batches:
        words = pyarrow.compute.list_flatten(pyarrow.compute.split_pattern(batch.column(0), " "))
        yield pyarrow.record_batch({"word": words})


class Count(StatefulProcessor):
    """Count of a word in the state store, for ``transformWithState``, emitted once per micro-batch. Each word costs
    several round trips per batch, so that larger batches are better: here of a million words."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:  # noqa: N802
        before = self.count.get()
        count = (before[0] if before else 0) + sum(len(frame) for frame in rows)
        self.count.update((count,))
        yield pandas.DataFrame({"word": [key[0]], "count": [count]})

    def close(self) -> None:
        """Does nothing, because no file is open."""


def counts_of(lines: DataFrame, kind: str) -> DataFrame:
    """Returns the changed counts of each micro-batch."""
    words = words_of(lines, kind).groupBy("word")
    if kind == "state":
        return words.transformWithStateInPandas(Count(), "word string, count long", "update", "none")
    return words.count()


def words_of(lines: DataFrame, kind: str) -> DataFrame:
    """Returns one row per word."""
    if kind == "arrow":
        return lines.mapInArrow(split_batches, "word string")
    if kind == "udf":
        split = f.udf(str.split, ArrayType(StringType()))
        return lines.select(f.explode(split("value")).alias("word"))
    return lines.select(f.explode(f.split("value", " ")).alias("word"))


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[4]
    workload = Workload(str(folder), int(sys.argv[2]), int(sys.argv[3]))
    builder = SparkSession.builder.master("local[2]").appName("words")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    run = Path(tempfile.mkdtemp(prefix=f"spark-{kind}-", dir=folder))  # its files and checkpoints are of this run
    files = run / "lines"
    line_files(workload, files)
    finals: dict[str, int] = {}
    lines = spark.readStream.option("maxFilesPerTrigger", FILES_A_BATCH[kind]).text(str(files))
    query = (
        counts_of(lines, kind)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(run / "checkpoint"))
        .foreachBatch(lambda batch, _: finals.update((row["word"], row["count"]) for row in batch.collect()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    full = FILES_A_BATCH[kind] * workload.lines
    warm = BATCHES_WARM.get(kind, BATCHES_WARM_USUAL)
    timed = [one for one in progress[warm:] if one["numInputRows"] == full] or progress[-1:]
    seconds = sum(one["durationMs"]["triggerExecution"] for one in timed) / 1e3
    print_result(sum(one["numInputRows"] for one in timed) * WORDS_A_LINE, seconds, finals)
    spark.stop()


if __name__ == "__main__":
    main()

"""Nexmark's queries in Spark's SQL: ``python -m ... FOLDER``; each line of the input is a request, as for Flink.

Two cores, state in RocksDB with two shuffle partitions and changelog, half a million events per micro-batch until there
are none left, checkpoints on. Spark does not end with a last watermark, so windows that are open at the end are not
emitted.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
from pyspark.sql import SparkSession

from benchmarks.nexmark.queries import QUERIES
from benchmarks.peers.peer_io import used_s
from benchmarks.peers.spark_words import SETTINGS

FILES_A_BATCH = 4
OWN_SETTINGS = {**SETTINGS, "spark.driver.memory": "6g", "spark.sql.session.timeZone": "UTC"}
WITH_WATERMARK = ("q5", "q7", "q8", "q11")
BY_UPDATES = ("q17", "q18")


def main() -> None:
    folder = Path(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").appName("nexmark")
    for key, value in OWN_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for number, line in enumerate(sys.stdin):
        try:
            answer = answered(spark, json.loads(line), folder / str(number))
        except Exception as error:  # noqa: BLE001  # reported to the asking process
            answer = {"failed": (str(error).splitlines() or [repr(error)])[0][:500]}
        print(json.dumps(answer), flush=True)


def answered(spark: Any, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Runs a request; returns its cost."""
    files = files_of(Path(request["events"]))
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    before_s, begun_s = used_s(jvm), time.monotonic()
    query = QUERIES[request["query"]]
    events = spark.readStream.schema(spark.read.parquet(str(files)).schema)
    events = events.option("maxFilesPerTrigger", FILES_A_BATCH).parquet(str(files))
    if query.name in WITH_WATERMARK:
        events = events.withWatermark("date_time", "2 seconds")
    events.where("kind = 0").createOrReplaceTempView("person")
    auctions = events.where("kind = 1").drop("id").withColumnRenamed("auction_id", "id")
    auctions.createOrReplaceTempView("auction")
    events.where("kind = 2").createOrReplaceTempView("bid")
    stream = spark.sql(query.spark_sql).writeStream.outputMode("update" if query.name in BY_UPDATES else "append")
    rows: list[tuple[Any, ...]] = []
    if "rows" in request:
        stream = stream.foreachBatch(lambda batch, _: rows.extend(map(tuple, batch.collect())))
    else:
        stream = stream.format("noop")
    running = stream.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    running.awaitTermination()
    if "rows" in request:
        Path(request["rows"]).write_bytes(pickle.dumps(rows))
    return {"cpu_s": used_s(jvm) - before_s, "seconds": time.monotonic() - begun_s}


def files_of(events: Path) -> Path:
    """Returns a folder with the same events in files of a chunk each, which a micro-batch can have several of."""
    folder = events.with_name(f"{events.name}-chunks")
    if folder.exists():
        return folder
    making = events.with_name(f"{events.name}-chunks.making")
    making.mkdir(parents=True, exist_ok=True)
    parts = [pyarrow.parquet.ParquetFile(path) for path in sorted(events.glob("*.parquet"))]
    for number in range(parts[0].num_row_groups):
        tables = [part.read_row_group(number) for part in parts if number < part.num_row_groups]
        places = numpy.concatenate([numpy.arange(table.num_rows) for table in tables])
        order = numpy.argsort(places, kind="stable")  # as they arrived: one of each file in turn
        path = making / f"{number:05}.parquet"
        pyarrow.parquet.write_table(pyarrow.concat_tables(tables).take(order), path)
        os.utime(path, (number, number))  # Spark reads them by age
    making.rename(folder)
    return folder


if __name__ == "__main__":
    main()

"""Spark reads the output of a running job: committed rows and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from clonos.connectors import files
from tests.unit.connectors.writing import JOB, part_of, writer_of

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

SINKS: dict[str, Callable[[Path], Any]] = {"parquet": files.parquet, "json": files.jsonl}


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.parametrize("pattern", ["", "/*", "/part-*"])
def test_spark_reads_the_committed_rows_of_a_running_job(
    context: SparkContext, tmp_path: Path, kind: str, pattern: str
) -> None:
    sink = SINKS[kind](tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    living = writer_of(sink, index=1)
    living.write([{"word": 99}] * 20_000)
    reader = SparkSession(context).read.format(kind)
    for checkpoint in (1, 2):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [{"word": checkpoint}])])
        part_of(sink, checkpoint + 1, [{"word": 98}], incarnation=7)
        found = reader.load(f"{tmp_path}/out{pattern}").collect()
        assert sorted(row["word"] for row in found) == list(range(1, checkpoint + 1))
    living.close()

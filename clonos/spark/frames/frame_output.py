"""Output of a job as a DataFrame: of a folder, or of the one output of files that a job has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.spark.frames.committed_parts import arrow_schema_of, kind_of, parts_of
from clonos.spark.frames.data_source import NAME, CommittedOutput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from clonos.api.graph import JobGraph

CONNECTOR = "frames.read"


def read_output(spark: SparkSession, path: str | os.PathLike[str], schema: StructType | str | None) -> DataFrame:
    """Returns the committed rows of an output. See ``frames.read``."""
    where = os.path.abspath(os.path.expanduser(os.fspath(path)))
    parts = parts_of(CONNECTOR, where)
    if not parts and schema is None:
        return spark.createDataFrame([], "")
    if schema is None and parts and kind_of(parts[0]) == "parquet" and not os.path.isfile(where):
        arrow_schema_of(CONNECTOR, where, parts)  # so that parts that do not fit together are named
        first = arrow_schema_of(CONNECTOR, where, parts[:1])
        if all(arrow_schema_of(CONNECTOR, where, [part]).equals(first) for part in parts):
            return spark.read.parquet(*(f"file://{part.path}" for part in parts))  # Spark's own reader is faster
    spark.dataSource.register(CommittedOutput)
    reader = spark.read.format(NAME)
    return (reader if schema is None else reader.schema(schema)).load(where)


def output_of(graph: JobGraph, step: str | None) -> str:
    """Returns the folder or file that a job writes.

    Raises: InvalidConnector: it has no output of files, or several, and ``step`` names none of them.
    """
    sinks: dict[str, Any] = {each.name: each.sink for each in graph.steps if isinstance(each.sink, FileSink)}
    if not sinks:
        problem = f"the job {graph.name} writes no files"
        raise InvalidConnector("to_dataframe", problem, 'End it with .sink(files.parquet("out/")).')
    if step is None and len(sinks) > 1:
        problem = f"the job {graph.name} has {len(sinks)} outputs of files: {', '.join(sinks)}"
        raise InvalidConnector("to_dataframe", problem, "Name one: to_dataframe(spark, step=...).")
    if step is not None and step not in sinks:
        problem = f"the job {graph.name} has no output of files {step!r}; it has {', '.join(sinks)}"
        raise InvalidConnector("to_dataframe", problem, "Name a step with such a sink.")
    folder: str = sinks[step or next(iter(sinks))].folder()
    return folder

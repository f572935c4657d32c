"""Writing of a DataFrame by Spark's executors: one Parquet file per partition, whose rows never pass the driver.

A task writes a file under a name of its own attempt and tells the driver of it. Spark takes the result of one attempt
per partition, so the files that the driver is told of have each row of the DataFrame once, whichever tasks fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow

from clonos.connectors.columns.parquet_rows import ParquetRows
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.filesystem.durable_files import WRITING, DurableFile, output_errors
from clonos.spark.frames.frame_errors import FrameFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ADVICE = "Select or cast its columns first."
WRITTEN = "partition INT, name STRING, rows BIGINT, size_bytes BIGINT, xxh3 STRING"


class WrittenPart(NamedTuple):
    """Parquet file of one partition."""

    partition: int
    name: str
    rows: int
    size_bytes: int
    xxh3: str


def checked_frame(connector: str, frame: Any) -> DataFrame:
    """Returns the argument if it is a DataFrame whose partitions can be written.

    Raises: InvalidConnector: it is something else, a stream, or of Spark Connect.
    """
    from pyspark.sql import DataFrame

    cls = type(frame)
    if not isinstance(frame, DataFrame):
        name = f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}"
        raise InvalidConnector(connector, f"it takes a DataFrame of Spark, not {name}", "Use spark.createDataFrame.")
    if cls.__module__.startswith("pyspark.sql.connect"):
        advice = "Create a classic session with SparkSession.builder.master(...)."
        raise InvalidConnector(connector, "the DataFrame is of Spark Connect", advice)
    if frame.isStreaming:
        advice = "Feed the job from its query: writeStream.foreachBatch(frames.feed(folder))."
        raise InvalidConnector(connector, "the DataFrame is a stream, which never ends", advice)
    return frame


def arrow_schema(connector: str, frame: DataFrame) -> Any:
    """Returns the ``pyarrow.Schema`` of the files; times with a zone are in UTC.

    Raises: InvalidConnector: two columns have one name, or Arrow has no such type.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    names = frame.columns
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InvalidConnector(connector, f"the DataFrame has two columns with the name {repeated[0]!r}", ADVICE)
    if not names:
        raise InvalidConnector(connector, "the DataFrame has no columns", ADVICE)
    try:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
    except PySparkException as error:
        reason = " ".join(str(error).split())
        raise InvalidConnector(connector, f"the DataFrame cannot become columns: {reason}", ADVICE) from None
    return pyarrow.schema([field.with_nullable(True).remove_metadata() for field in schema])


def write_frame(
    connector: str, frame: DataFrame, folder: str, stem: str, run: int, suffix: str = ".parquet"
) -> list[WrittenPart]:
    """Lets Spark's executors write the rows of a DataFrame into ``folder``, and returns the files, by partition.

    A file is ``<stem>-<partition>-<run>-<attempt><suffix>``. A partition without rows has none.

    Raises: FrameFailed: a task of Spark has failed, or the driver does not see what executors wrote. InvalidConnector.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from clonos.spark.session import import_path, quiet_about_pandas
    from clonos.spark.slots import failure_reason

    schema = arrow_schema(connector, frame).serialize().to_pybytes()
    writer = _writer(f"{folder}/{stem}", f"{run}", suffix, schema, import_path())
    try:
        with quiet_about_pandas():
            rows = frame.mapInArrow(writer, WRITTEN).collect()
    except (Py4JError, PySparkException) as error:
        raise FrameFailed(connector, failure_reason(error)) from error
    parts = sorted(WrittenPart(*row) for row in rows)
    for part in parts:
        _check_seen(connector, f"{folder}/{part.name}", part)
    return parts


def _writer(stem: str, run: str, suffix: str, schema: bytes, path: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Returns the function that tasks run. It is nested, so that it is pickled by value."""

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import sys

        sys.path.extend(entry for entry in path.split(os.pathsep) if entry not in sys.path and os.path.exists(entry))
        from pyspark import TaskContext

        from clonos.spark.frames.part_writer import write_partition

        task: Any = TaskContext.get()
        name = f"{stem}-{task.partitionId()}-{run}-{task.taskAttemptId()}{suffix}"
        yield from write_partition(batches, name, schema, task.partitionId())

    return write


def write_partition(batches: Iterable[Any], path: str, schema: bytes, partition: int) -> Iterator[Any]:
    """Writes batches into a new file and yields one batch that describes it; none without rows.

    Raises: OutputFailed: the disk fails. RowNotWritable: a batch does not fit the schema.
    """
    batches = iter(batches)
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    with output_errors(os.path.dirname(path), "created"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    file = DurableFile(path + WRITING)
    rows_file = ParquetRows(file, pyarrow.ipc.read_schema(pyarrow.py_buffer(schema)))
    rows = 0
    try:
        for batch in chain((first,), batches):
            rows_file.columns(batch)
            rows += batch.num_rows
        rows_file.finish()
        xxh3 = file.publish(path)
    finally:
        rows_file.abandon()
        file.discard()
    columns = [[partition], [os.path.basename(path)], [rows], [file.size_bytes], [xxh3]]
    types = [pyarrow.int32(), pyarrow.string(), pyarrow.int64(), pyarrow.int64(), pyarrow.string()]
    arrays = [pyarrow.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    yield pyarrow.RecordBatch.from_arrays(arrays, names=list(WrittenPart._fields))


def _check_seen(connector: str, path: str, part: WrittenPart) -> None:
    """Raises FrameFailed if the driver finds another file than the executor has written, or none."""
    try:
        found = f"finds {os.stat(path).st_size} bytes"
    except OSError as error:
        found = f"does not find it ({error.strerror})"
    if found != f"finds {part.size_bytes} bytes":
        reason = f"an executor wrote {path} with {part.size_bytes} bytes, and the driver {found}; give a shared folder"
        raise FrameFailed(connector, reason)

"""DataFrames of Spark: ``frames.source`` reads one, ``frames.read`` gives the output of a job as one.

``frames.feed`` lets a streaming query feed a running job, ``frames.register`` lets Spark read what a job puts out.

It needs pyspark: ``pip install 'clonos[spark]'``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clonos.core.model.missing_names import explains_names
from clonos.core.model.wrong_calls import explains_calls
from clonos.spark.frames.frame_errors import FrameFailed, OutputWithdrawn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from clonos.spark.frames.frame_feed import FrameFeed
    from clonos.spark.frames.frame_source import FrameSource

__all__ = ["source", "read", "feed", "register", "state", "FrameFailed", "OutputWithdrawn"]


@explains_calls
def source(
    frame: DataFrame, *, folder: str | os.PathLike[str] | None = None, ordered: bool | None = None
) -> FrameSource:
    """Source of the rows of a DataFrame, as ``pyarrow.RecordBatch``.

    Spark's executors write each partition once, as a Parquet file, when the job first starts; the tasks read these
    files, after a failure and after ``--resume`` too. No row passes the driver.

    Args:
        frame: a DataFrame of a classic session, with columns that Arrow has types for.
        folder: folder for the files, which all machines of the job share; by default a folder of the checkpoint store.
        ordered: True reads each partition as one split, in its order; False reads its row groups in parallel. By
            default a partition is one split if a step that follows depends on the order of records.

    Raises:
        InvalidConnector: this is no such DataFrame, or two columns have one name.
        FrameFailed: when the job starts, Spark cannot compute or write it.

    Example::

        job.source(frames.source(spark.table("orders"))).filter(col("cents") > 100)
    """
    from clonos.spark.frames.frame_source import FrameSource

    return FrameSource(frame, folder, ordered)


@explains_calls
def read(spark: SparkSession, path: str | os.PathLike[str], *, schema: StructType | str | None = None) -> DataFrame:
    """Returns the committed rows of a job's output as a DataFrame: those of whole checkpoints, as they are now.

    Args:
        spark: the session of the DataFrame.
        path: folder or file of a sink: ``files.parquet``, ``arrow``, ``jsonl`` or ``csv``.
        schema: columns in Spark's types; by default those of the part files. An output without rows has no columns.

    Raises:
        InputMissing: there is no such output.
        InvalidConnector: part files have types that do not fit together.
        OutputCorrupt: a part file or a manifest is damaged.
    """
    from clonos.spark.frames.frame_output import read_output

    return read_output(spark, path, schema)


@explains_calls
def feed(folder: str | os.PathLike[str]) -> FrameFeed:
    """Function for ``foreachBatch`` of a streaming query, which commits each batch to a folder once.

    A job reads the folder by ``files.parquet(folder, watch="1s")`` and sees whole batches. A batch that Spark repeats
    after a failure is written no second time.

    Args:
        folder: folder that executors, the driver and the job share; it serves one query.

    Raises:
        InvalidConnector: in the query, when another query feeds the folder, or no query calls the function.
        FrameFailed: in the query, when Spark cannot compute or write a batch.

    Example::

        stream.writeStream.foreachBatch(frames.feed("arriving/")).option("checkpointLocation", "feed/").start()
    """
    from clonos.spark.frames.frame_feed import FrameFeed

    return FrameFeed(folder)


@explains_calls
def register(spark: SparkSession) -> None:
    """Registers the format ``clonos``, by which this session reads the output of a job.

    ``spark.read.format("clonos").load("out/")`` reads what is committed, and
    ``spark.readStream.format("clonos").load("out/")`` follows it.
    """
    from clonos.spark.frames.data_source import CommittedOutput

    spark.dataSource.register(CommittedOutput)


@explains_calls
def state(spark: SparkSession, store: str | os.PathLike[str], step: str, *, checkpoint: int | None = None) -> DataFrame:
    """Returns the state of a step, as a checkpoint has it, as a DataFrame with a row per key.

    Its columns are ``task``, ``state`` (the name of the descriptor, or of what a window or an aggregate keeps), ``key``
    and ``value``, both as JSON: ``from_json`` gives them types. Executors read the store when Spark computes the
    DataFrame; the code of the job is not needed.

    Args:
        spark: the session of the DataFrame.
        store: the checkpoint store of the job, a path or a URL.
        step: name of a step with state.
        checkpoint: number of a checkpoint; by default the last complete one.

    Raises:
        NothingToResume: the store has no job, or no such checkpoint.
        InvalidConnector: the checkpoint has no such step.
    """
    from clonos.spark.frames.state_rows import state_frame

    return state_frame(spark, os.fspath(store), step, checkpoint)


explains_names(
    __name__,
    {
        "sink": "Use feed, or read the output of a job with read.",
        "table": "Use source(spark.table(name)).",
    },
)

"""State of a step in a checkpoint as a DataFrame: Spark's executors read the objects of the store, a task each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from clonos.io.store.store import CheckpointStore
from clonos.spark.frames.state_rows import tasks_with_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = "task STRING, state STRING, key STRING, value STRING"


def state_frame(spark: SparkSession, store: str, step: str, checkpoint: int | None) -> DataFrame:
    """Returns the state of a step. See ``frames.state``."""
    from clonos.spark.session import context_of, import_path

    context = context_of(spark)
    tasks = tasks_with_state(store, step, checkpoint)
    url = CheckpointStore(store).objects_url
    plain: Any = [tuple(task) for task in tasks]  # so that unpickling needs no class of this library
    rows = context.parallelize(plain, max(1, len(tasks))).flatMap(_reader(url, step, import_path()))
    return spark.createDataFrame(rows, ROWS)


def _reader(url: str, step: str, path: str) -> Callable[[tuple[str, tuple[str, ...]]], Iterable[Any]]:
    """Returns the function that tasks of Spark run. It is nested, so that it is pickled by value."""

    def read(task: tuple[str, tuple[str, ...]]) -> Iterable[Any]:
        import os
        import sys

        sys.path.extend(entry for entry in path.split(os.pathsep) if entry not in sys.path and os.path.exists(entry))
        from clonos.spark.frames.state_rows import CheckpointedTask, rows_of_state

        return map(tuple, rows_of_state(url, step, CheckpointedTask(*task)))

    return read

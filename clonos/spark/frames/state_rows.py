"""Rows of the state of a step, as a checkpoint of a job has it: read from its store without the code of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from clonos.connectors.connector_errors import InvalidConnector, RowNotWritable
from clonos.connectors.json_text import json_text
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, decode_metadata
from clonos.core.checkpoint.snapshot import is_moved, restore_from
from clonos.core.values.keys import key_of
from clonos.io.store.object_files import ObjectMissing
from clonos.io.store.store import CheckpointStore
from clonos.operators.state.column_entries import entries_of, rows_in
from clonos.operators.state.keyed_state import StateImage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR = "frames.state"
NO_KEY: Final = object()
"""In place of the key of a row that has none."""

REGISTERING: Final = (
    "clonos.connectors.codecs.debezium",
    "clonos.connectors.kafka.message",
    "clonos.connectors.mqtt.session_source",
    "clonos.connectors.nats.message",
    "clonos.connectors.postgres.change_stream",
    "clonos.connectors.rabbitmq.message",
    "clonos.connectors.redis.entry_source",
    "clonos.connectors.web.request",
    "clonos.demo.wordcount",
    "clonos.operators.aggregates.partial",
    "clonos.operators.steps.awaited_events",
    "clonos.operators.steps.enrich_batch",
    "clonos.operators.transforms.sink_rows",
    "clonos.operators.user_errors",
    "clonos.operators.windows.window_results",
    "clonos_services.ai_agent",
    "clonos_services.ai_shown",
)
"""Modules of the library that register classes: state may have objects of these, whose code a reader has too."""


class CheckpointedTask(NamedTuple):
    """Task of a checkpoint: its name, and the objects from which its state is restored."""

    task: str
    objects: tuple[str, ...]


class StateRow(NamedTuple):
    """Entry of the state of a task; key and value are JSON."""

    task: str
    state: str
    key: str
    value: str


def tasks_with_state(url: str, step: str, checkpoint: int | None) -> list[CheckpointedTask]:
    """Returns the tasks of a step in a checkpoint; by default in the last one.

    Raises: NothingToResume: the store has no job, or no such checkpoint. InvalidConnector: the job has no such step
    with state. MetadataMalformed.
    """
    store = CheckpointStore(url)
    store.find_job()
    metadata = decode_metadata(store.checkpoint_metadata(checkpoint), f"the chain of {store.url}")
    names = steps_with_state(metadata)
    if step not in names:
        known = ", ".join(names) or "no steps with state"
        raise InvalidConnector(
            CONNECTOR, f"checkpoint {metadata.checkpoint} has no state of {step!r}", f"It has {known}."
        )
    return tasks_of(metadata, step)


def steps_with_state(metadata: CheckpointMetadata) -> list[str]:
    """Returns the names of the steps of a checkpoint that may have state."""
    return [each.name for vertex in metadata.plan.vertices for each in vertex.steps]


def tasks_of(metadata: CheckpointMetadata, step: str) -> list[CheckpointedTask]:
    """Returns the tasks of a step in a checkpoint that have state."""
    found, first = [], 0
    for vertex in metadata.plan.vertices:
        if any(each.name == step for each in vertex.steps):
            entries = metadata.tasks[first : first + vertex.parallelism]
            found += [
                CheckpointedTask(f"{vertex.name}/{number}", entry.objects) for number, entry in enumerate(entries)
            ]
        first += vertex.parallelism
    return [each for each in found if each.objects]


def rows_of_state(url: str, step: str, task: CheckpointedTask) -> Iterator[StateRow]:
    """Yields the state that a task has for a step: its tables by key, then rows without a key.

    Raises: InvalidConnector: the checkpoint has been removed since. RowNotWritable: a value has no JSON form.
    SnapshotMalformed, StateMalformed, ValueMalformed: the state cannot be decoded here.
    """
    try:
        yield from rows_of_task(CheckpointStore(url).read_object, step, task)
    except ObjectMissing as error:
        problem = f"the job has removed {error.name} of this checkpoint from {url} since"
        raise InvalidConnector(CONNECTOR, problem, "Read the last checkpoint, or keep the rows with cache().") from None


def rows_of_task(
    read_object: Callable[[str], Iterable[bytes | memoryview]],
    step: str,
    task: CheckpointedTask,
    began: Callable[[int], object] = int,
    text: Callable[[Any], str] = json_text,
) -> Iterator[StateRow]:
    """Yields the state that a task has for a step, see ``rows_of_state``.

    ``read_object`` returns the pieces of an object of its checkpoint or savepoint. ``began`` is called with the number
    of rows, about, before the first one. ``text`` returns a key or a value as JSON.

    Raises: ObjectMissing. InvalidConnector: a start has changed the tasks, and no checkpoint followed. RowNotWritable.
    SnapshotMalformed, StateMalformed, ValueMalformed.
    """
    image = image_of_task(read_object, task)
    began(_row_count(image, step))
    for state, key, value in entries_of_step(image, step):
        yield StateRow(task.task, state, text(None if key is NO_KEY else key), text(value))


def shown_text(value: Any) -> str:
    """Encodes a value as JSON for people: by its ``repr`` without a JSON form, as of a suspended call."""
    try:
        return json_text(value)
    except RowNotWritable:
        return json_text(repr(value))


def image_of_task(read_object: Callable[[str], Iterable[bytes | memoryview]], task: CheckpointedTask) -> StateImage:
    """Returns the whole state of a task.

    Raises: ObjectMissing. InvalidConnector: a start has changed the tasks, and no checkpoint followed.
    SnapshotMalformed, StateMalformed, ValueMalformed.
    """
    if task.objects and is_moved(task.objects[-1]):
        problem = f"the job has not divided the state of {task.task} among its tasks yet"
        raise InvalidConnector(CONNECTOR, problem, "Read its next checkpoint.")
    for module in REGISTERING:
        import_module(module)
    image = StateImage()
    restore_from([(name, read_object(name)) for name in task.objects], image)
    return image


def entries_of_step(image: StateImage, step: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields the state of a step as (state, key, value): its tables by key, then rows, whose key is ``NO_KEY``.

    A key of several columns is a list; the value of a table in columns is a dict by column.
    """
    for name, entries in image.tables.items():
        if (state := _state_of(name, step)) is not None:
            for key, value in entries.items():
                yield state, key_of(key), value
    for name, columns in image.columns.items():
        if (state := _state_of(name, step)) is not None:
            for key, value in entries_of(columns):
                yield state, key, value
    for name, rows in image.stores.items():
        if (state := _state_of(name, step)) is not None:
            for row in rows_in(rows):
                yield state, NO_KEY, row


def _row_count(image: StateImage, step: str) -> int:
    columns = {name: found.live() for name, found in image.columns.items()}
    counts = [(name, len(found)) for part in (image.tables, columns, image.stores) for name, found in part.items()]
    return sum(count for name, count in counts if _state_of(name, step) is not None)


def _state_of(table: str, step: str) -> str | None:
    """Returns the name of a state within its step; None for a table of another step."""
    return table.removeprefix(f"{step}/") if table.startswith(f"{step}/") else None


ROWS = "task STRING, state STRING, key STRING, value STRING"


def state_frame(spark: SparkSession, store: str, step: str, checkpoint: int | None) -> DataFrame:
    """Returns the state of a step (``frames.state``): Spark's executors read the objects, a task each."""
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

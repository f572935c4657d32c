"""Checks of sinks against the graph.

The stream of a sink with one row per key must be keyed, so that one task writes all rows of a key. A sink that stores
fields by name gets no tuples. A sink that writes a single file when the job has ended needs sources that end. Outputs
are not inside each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from clonos.api.columns.forms import giver_of_tuples
from clonos.api.columns.schemas import known_schema
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import Exchange, Step, StepInput
from clonos.operators.connector_contract import KeyedSink, discovery_interval_ns, keyed_sink


def check_keyed(step: Step, steps: Sequence[Step], parallelism_of: Callable[[Step], int]) -> None:
    """Checks that the stream of a sink with a key is keyed by columns of that key.

    Raises: InvalidJob: it is not, or the graph does not show it.
    """
    sink = keyed_sink(step.sink)
    if sink is None:
        return
    for step_input in step.inputs:
        keys = _key_columns(step_input, step, steps, parallelism_of, sink)
        if not keys or not {*keys} <= {*sink.key_columns}:
            columns, by = ", ".join(sink.key_columns), f" but by {', '.join(keys)}" if keys else ""
            raise InvalidJob(
                step.name,
                f"replaces rows by {columns}, and its stream is not keyed by that{by}",
                f'Put .key_by("{sink.key_columns[0]}") before the sink: all rows of a key must come from one task.',
            )


def check_single_file(name: str, sink: object, steps: Sequence[Step]) -> None:
    """Checks that a sink that writes a single file has sources that end.

    Raises: InvalidJob: a source watches for new files.
    """
    endless = next((step.name for step in steps if discovery_interval_ns(step.source)), None)
    if endless is not None and getattr(sink, "is_single_file", False):
        raise InvalidJob(
            name,
            f"has single=True, which writes the file when all sources have ended, and {endless} never ends",
            "Leave out single=True to write a folder of part files, or watch= of the source.",
        )


def check_names(step: Step, steps: Sequence[Step]) -> None:
    """Checks that a sink that stores fields by name gets no tuples, which have no names.

    Raises: InvalidJob: the step in front gives tuples.
    """
    if not getattr(step.sink, "needs_names", False):
        return
    for step_input in step.inputs:
        giver = giver_of_tuples(steps, step_input)
        if giver is None:
            continue
        schema = known_schema(steps, StepInput(giver.number))
        remedy = "map(...) with a function that returns a dict"
        if giver.emits_columns:
            names = ", ".join(map(repr, schema.names)) if schema is not None else '"a", "b"'
            remedy = f"select({names})"
        raise InvalidJob(
            step.name,
            f"stores fields by their names, and {giver.name} gives tuples, which have none",
            f"Put {remedy} in front of the sink.",
        )


def check_folders(sinks: Iterable[tuple[str, object]]) -> None:
    """Checks that no output is inside another one, whose readers would see its rows. ``sinks``: with their steps.

    Raises: InvalidJob: it is.
    """
    folders: list[tuple[str, str, str]] = []
    for name, sink in sinks:
        folder_of: Callable[[], str] | None = getattr(sink, "folder", None)
        if callable(folder_of):
            folder = folder_of()
            folders.append((name, folder, os.path.realpath(folder)))
    for index, (name, folder, path) in enumerate(folders):
        for place, (other, other_folder, other_path) in enumerate(folders):
            if place < index and path == other_path:
                problem = f"writes to {folder}, which is the output of the step {other} too"
            elif path.startswith(f"{other_path}{os.sep}"):
                problem = f"writes to {folder}, which is inside {other_folder}, the output of the step {other}"
            else:
                continue
            raise InvalidJob(name, problem, "Give each output its own folder, beside the others.")


def refuse_key(name: str, sink: object) -> None:
    """Checks that ``sink`` has no key, because its records have none.

    Raises: InvalidJob: it has one.
    """
    keyed = keyed_sink(sink)
    if keyed is not None:
        columns = ", ".join(keyed.key_columns)
        raise InvalidJob(name, f"replaces rows by {columns}, and errors have no key", "Leave out upsert=.")


def _key_columns(
    step_input: StepInput, step: Step, steps: Sequence[Step], parallelism_of: Callable[[Step], int], sink: KeyedSink
) -> tuple[str, ...]:
    """Returns the columns that the input of a sink is keyed by, or () if the graph does not show them."""
    while step_input.key is None:
        upstream = steps[step_input.step]
        if step_input.exchange is not Exchange.FORWARD or parallelism_of(upstream) != parallelism_of(step):
            return ()
        if upstream.key_field is not None:
            return (upstream.key_field or (sink.columns or ("",))[0],)
        if not upstream.selects_rows or len(upstream.inputs) != 1:
            return ()
        step_input = upstream.inputs[0]
    return step_input.key.fields

"""Which steps give columns whose rows are no dicts by the names of these columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clonos.api.graph_errors import InvalidJob
from clonos.api.step import Step, StepInput
from clonos.api.step_graph import StepGraph

FORMED: Final = frozenset({"aggregate", "count", "join", "join_as_of", "lookup"})
WINDOW: Final = "window_"
"""Kinds of steps whose rows are no dicts by the names of their columns, and the prefix of others."""

JOINS: Final = frozenset({"join", "join_as_of", "lookup"})


def former_of(steps: Sequence[Step], step_input: StepInput) -> Step | None:
    """Returns the step that gives the rows of an input another form than that of its columns; None if none does."""
    step = steps[step_input.step]
    if not step.emits_columns or step_input.tag:
        return None
    if step.passes_records:
        return next((found for each in step.inputs if (found := former_of(steps, each)) is not None), None)
    if {("how", "semi"), ("how", "anti")} & {*(step.state or ())}:
        return former_of(steps, step.inputs[0])
    is_list = step.kind == "top_k" and step.key_field is not None
    return step if step.kind.startswith(WINDOW) or step.kind in FORMED or is_list else None


def giver_of_tuples(steps: Sequence[Step], step_input: StepInput) -> Step | None:
    """Returns the step whose results are tuples without names in a sink of columns; None if none gives such."""
    step = steps[step_input.step]
    if step_input.tag:
        return None
    if step.passes_records or step.kind == "filter":
        return next((found for each in step.inputs if (found := giver_of_tuples(steps, each)) is not None), None)
    if step.kind in JOINS:
        has_one_side = bool({("how", "semi"), ("how", "anti")} & {*(step.state or ())})
        return None if has_one_side or step.functions else step
    is_written_as_columns = step.emits_columns and step.kind != "aggregate"
    return step if step.key_field == "" and not is_written_as_columns else None


def has_named_columns(steps: Sequence[Step], step: Step) -> bool:
    """Returns whether a step that names columns gets records of another form, which it takes by their columns."""
    return step.names_columns and any(
        former_of(steps, each) is not None and (each.key is None or bool(each.key.fields)) for each in step.inputs
    )


def needs_columns(steps: Sequence[Step], step: Step, step_input: StepInput, reason: str) -> bool:
    """Returns whether a step cannot take the rows that an input gives.

    ``reason``: why the step in front turns columns into rows, "" if it does not.
    """
    is_of_columns = steps[step_input.step].emits_columns and not step_input.tag
    if step.requires_columns:
        return bool(reason) or not is_of_columns
    is_keyed = step_input.key is not None and bool(step_input.key.fields)
    return bool(reason) and is_of_columns and (is_keyed or has_named_columns(steps, step))


def refuse_columns(graph: StepGraph, inputs: Sequence[StepInput], step: str, example: str) -> None:
    """Refuses the comparison of whole records that come as columns.

    Raises: InvalidJob: there are such records, which are no keys in rows.
    """
    for each in inputs:
        former = former_of(graph.steps, each)
        if graph.gives_columns(each) and (former is None or former.kind != "count"):
            raise InvalidJob(
                step,
                f"compares whole records, and those of {graph.steps[each.step].name} are columns",
                f"Name what to compare: {example}, or for several columns key_by(...).deduplicate().",
            )

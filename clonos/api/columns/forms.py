"""Which steps give columns whose rows are no dicts by the names of these columns."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.api.graph_errors import InvalidJob
from clonos.api.step import Step, StepInput
from clonos.api.step_graph import StepGraph


def former_of(steps: Sequence[Step], step_input: StepInput) -> Step | None:
    """Returns the step that gives the rows of an input another form than that of its columns; None if none does."""
    step = steps[step_input.step]
    if not step.emits_columns or step_input.tag:
        return None
    if step.passes_records:
        return next((found for each in step.sides[0] if (found := former_of(steps, each)) is not None), None)
    return None if step.form is None or step.form.gives_dicts else step


def giver_of_tuples(steps: Sequence[Step], step_input: StepInput) -> Step | None:
    """Returns the step whose results are tuples without names in a sink of columns; None if none gives such."""
    step = steps[step_input.step]
    if step_input.tag:
        return None
    if step.passes_records or step.selects_rows:
        return next((found for each in step.sides[0] if (found := giver_of_tuples(steps, each)) is not None), None)
    is_written = step.emits_columns and step.form is not None and step.form.is_written
    return step if (step.gives_pairs or step.key_field == "") and not is_written else None


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
        if graph.gives_columns(each) and (former is None or former.form is None or not former.form.gives_keys):
            raise InvalidJob(
                step,
                f"compares whole records, and those of {graph.steps[each.step].name} are columns",
                f"Name what to compare: {example}, or for several columns key_by(...).deduplicate().",
            )

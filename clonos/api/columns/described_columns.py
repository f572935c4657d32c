"""Which steps work on columns: chosen in the plan, by the columns that it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from clonos.api.columns.schemas import known_input, why_unknown
from clonos.api.step import Step, StepInput
from clonos.api.step_graph import StepGraph
from clonos.operators.column_contract import DescribedSource, SampledSource
from clonos.operators.columnar.column_form import ColumnForm
from clonos.operators.operator import Operator


def described(graph: StepGraph, splits: Mapping[str, Sequence[bytes]]) -> StepGraph:
    """Copies a graph with what its plan knows of the columns of sources. ``splits`` are those of the job."""
    return graph.changed(lambda step: _described(step, splits.get(step.name, ())), graph.errors)


def _described(step: Step, splits: Sequence[bytes]) -> Step:
    if step.source is None:
        return step
    return replace(step, columns=_columns_of(step.source, splits), is_described=True)


def _columns_of(source: Any, splits: Sequence[bytes]) -> Any | None:
    if isinstance(source, SampledSource):
        return source.sampled_schema(splits)
    return source.column_schema() if isinstance(source, DescribedSource) else None


def stored_columns(step: Step, steps: Sequence[Step]) -> Any | None:
    """Returns the columns that the operator of a step over columns depends on; None if it works on rows."""
    if step.form is None or form_reason(step.form, step, steps):
        return None
    schema = known_input(steps, step)
    return None if schema is None else step.form.stored(schema)


def form_reason(form: ColumnForm, step: Step, steps: Sequence[Step]) -> str:
    """Returns why a step that has a form over columns works on rows; "" if it works on columns."""
    if form.keeps_records and not all(_has_plain_rows(steps, each) for each in step.inputs):
        return "it keeps results as they came"
    schema = known_input(steps, step)
    return why_unknown(steps, step.inputs) if schema is None else form.row_reason(schema)


def _has_plain_rows(steps: Sequence[Step], step_input: StepInput) -> bool:
    """Returns whether the rows of a stream of columns are dicts: it has no results of windows, aggregates or joins."""
    step = steps[step_input.step]
    if step.source is not None or step.stage is not None:
        return True
    return step.schema_from is None and all(_has_plain_rows(steps, each) for each in step.inputs)


def maker_of(step: Step, steps: Sequence[Step]) -> Callable[[], Operator] | None:
    """Returns what makes the operator of a step, over columns or over rows."""
    columns = stored_columns(step, steps)
    if columns is None or step.form is None:
        return step.make
    return partial(step.form.operator, step.name, columns)

"""Which steps work on columns: chosen in the plan, by the columns that it knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from clonos.api.columns.forms import former_of
from clonos.api.columns.schemas import DIFFERENT, known_schema, why_unknown
from clonos.api.step import Step, StepInput
from clonos.api.step_graph import StepGraph
from clonos.operators.column_contract import DescribedSource, SampledSource
from clonos.operators.columnar.column_form import ColumnForm
from clonos.operators.columnar.row_forms import have_equal_rows
from clonos.operators.operator import Operator


def described(graph: StepGraph, splits: Mapping[str, Sequence[bytes]]) -> StepGraph:
    """Copies a graph with what its plan knows of the columns of sources. ``splits`` are those of the job."""
    return graph.changed(lambda step: _described(step, splits.get(step.name, ())), graph.errors)


def _described(step: Step, splits: Sequence[bytes]) -> Step:
    if step.source is None:
        return step
    return replace(step, columns=_columns_of(step.source, splits), is_described=True)


def _columns_of(source: Any, splits: Sequence[bytes]) -> Any | None:
    found = None
    if isinstance(source, SampledSource):
        found = source.sampled_schema(splits)
    elif isinstance(source, DescribedSource):
        found = source.column_schema()
    if found is None:
        return None
    from clonos.operators.columnar.plain_columns import plain_schema  # loads pyarrow

    return plain_schema(found)


def stored_columns(step: Step, steps: Sequence[Step]) -> tuple[Any, ...]:
    """Returns the columns that the operator of a step over columns depends on, of each side; () if it works on rows."""
    if step.form is None or form_reason(step.form, step, steps):
        return ()
    return step.form.stored(next(_schemas(step, steps)))


def form_reason(form: ColumnForm, step: Step, steps: Sequence[Step]) -> str:
    """Returns why a step that has a form over columns works on rows; "" if it works on columns.

    Streams of a union may differ in columns that the operator does not depend on.
    """
    if form.keeps_records and not all(_has_one_form(steps, each) for each in step.inputs):
        return "it keeps results of a full join as they came"
    if any(known_schema(steps, each) is None for each in step.inputs):
        return why_unknown(steps, step.inputs)
    schemas = list(_schemas(step, steps))
    if reason := next(filter(None, (form.row_reason(each) for each in schemas)), ""):
        return reason
    first, *others = (form.stored(each) for each in schemas)
    return "" if all(_are_equal(first, each) for each in others) else DIFFERENT


def _schemas(step: Step, steps: Sequence[Step]) -> Iterator[tuple[Any, ...]]:
    """Yields the schemas of both sides of a join, or that of the only side, for each stream of unions."""
    return product(*([known_schema(steps, each) for each in side] for side in step.sides))


def _are_equal(these: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(map(have_equal_rows, these, others))


def _has_one_form(steps: Sequence[Step], step_input: StepInput) -> bool:
    """Returns whether all rows of a stream have the form that the plan knows."""
    former = former_of(steps, step_input)
    return former is None or former.form is None or not former.form.has_mixed_rows


def givers(steps: Sequence[Step], step_input: StepInput) -> Iterator[Step]:
    """Yields the steps that gave the records of an input, to which others have added columns: sources, mostly."""
    step = steps[step_input.step]
    if step.stage is None and not step.passes_records:
        yield step
        return
    for each in step.sides[0]:
        yield from givers(steps, each)


def planned_sources(steps: Sequence[Step]) -> frozenset[int]:
    """Returns the numbers of the sources whose records have to have the columns of the plan."""
    inputs = [each for step in steps if stored_columns(step, steps) for each in step.inputs]
    return frozenset(giver.number for each in inputs for giver in givers(steps, each) if giver.source is not None)


def maker_of(step: Step, steps: Sequence[Step]) -> Callable[[], Operator] | None:
    """Returns what makes the operator of a step, over columns or over rows."""
    columns = stored_columns(step, steps)
    if not columns or step.form is None:
        return step.make
    return partial(step.form.operator, step.name, columns)

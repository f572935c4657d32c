"""Checks of the columns that steps name, where the plan knows the columns of their input: keys and aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from clonos.api.columns.schemas import known_schema
from clonos.api.graph_errors import InvalidJob
from clonos.api.plan.step_texts import reason_for_rows
from clonos.api.step import Step, StepInput
from clonos.api.step_graph import StepGraph
from clonos.core.model.missing_names import nearest
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.aggregates.numeric import Mean, Stddev, Sum, Variance
from clonos.operators.aggregates.quantiles import Quantile
from clonos.operators.columnar.support import column_of, columns_read, parts_of

ADDING: Final = (Sum, Mean, Variance, Stddev, Quantile)
"""Aggregates of numbers."""


def check_key(graph: StepGraph, inputs: Sequence[StepInput], step: str, fields: Sequence[str]) -> None:
    """Checks that each input has the columns of a key, of types that a key may have.

    Raises: InvalidJob: it does not.
    """
    for schema in _schemas(graph, inputs):
        for name in fields:
            _check_present(step, f"takes the column {name!r} for its key", name, schema)
            from clonos.operators.columnar.joins.key_classes import refusal  # loads pyarrow

            if reason := refusal(name, schema.field(name).type):
                problem = f"takes the column {name!r}, of the type {schema.field(name).type}, for its key"
                raise InvalidJob(step, problem, reason)


def check_joined_keys(
    graph: StepGraph, step: str, inputs: Sequence[Sequence[StepInput]], keys: Sequence[Sequence[str]]
) -> None:
    """Checks that values of the key columns of both sides of a join may be equal.

    Raises: InvalidJob: they are never.
    """
    for left in _schemas(graph, inputs[0]):
        for right in _schemas(graph, inputs[1]):
            from clonos.operators.columnar.joins.key_classes import CONVERT, unequal  # loads pyarrow

            if problem := unequal((left, right), keys):
                raise InvalidJob(step, problem, CONVERT)


def check_aggregates(
    graph: StepGraph,
    inputs: Sequence[StepInput],
    step: str,
    aggregation: Aggregation[Any, Any],
    *,
    has_logs: bool = False,
) -> None:
    """Checks that each input has the columns that aggregates read, and that those of sums are numbers.

    ``has_logs``: see ``columns_read``.

    Raises: InvalidJob: it does not.
    """
    is_columnar = columns_read(aggregation, has_members=True, has_logs=has_logs) is not None
    for schema in _schemas(graph, [each for each in inputs if _names_columns(graph, each, is_columnar)]):
        for each in parts_of(aggregation).values():
            name = column_of(each)
            if not isinstance(name, str):
                continue
            _check_present(step, f"has {each!r}", name, schema)
            from clonos.operators.columnar.joins.key_classes import may_be_number  # loads pyarrow

            type_ = schema.field(name).type
            if isinstance(each, ADDING) and not may_be_number(type_):
                problem = f"has {each!r}, and the column {name!r} is of the type {type_}, which is none of numbers"
                raise InvalidJob(step, problem, f'Cast it in front of the step: with_columns(col("{name}").cast(int)).')


def check_present(graph: StepGraph, inputs: Sequence[StepInput], step: str, use: str, name: object) -> None:
    """Checks that each input has a column; ``use`` says what for. Names only are checked.

    Raises: InvalidJob: it does not.
    """
    if isinstance(name, str):
        for schema in _schemas(graph, [each for each in inputs if _names_columns(graph, each, True)]):
            _check_present(step, use, name, schema)


def _schemas(graph: StepGraph, inputs: Sequence[StepInput]) -> Iterator[Any]:
    """Yields the schemas of those inputs that are known to be of columns."""
    for each in inputs:
        if graph.gives_columns(each) and not reason_for_rows(each, graph.steps):
            schema = known_schema(graph.steps, each)
            if schema is not None:
                yield schema


def _names_columns(graph: StepGraph, step_input: StepInput, is_columnar: bool) -> bool:
    """Returns whether a name is that of a column: the step reads columns, or rows that are dicts by their names."""
    has_function = step_input.key is not None and not step_input.key.fields
    return (is_columnar and not has_function) or _gives_dicts(graph.steps, step_input)


def _gives_dicts(steps: Sequence[Step], step_input: StepInput) -> bool:
    """Returns whether the rows of a stream of columns are dicts by the names of the columns."""
    step = steps[step_input.step]
    if step.source is not None or (step.stage is not None and step.stage.kind != "filter"):
        return True
    passes = step.stage is not None or step.passes_records
    return passes and all(_gives_dicts(steps, each) for each in step.sides[0])


def _check_present(step: str, use: str, name: str, schema: Any) -> None:
    if name in schema.names:
        return
    columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
    similar = nearest(name, schema.names)
    advice = f"{similar} " if similar else ""
    raise InvalidJob(
        step, f"{use}, and there is no column {name!r}", f"{advice}Its input has the columns {columns or '(none)'}."
    )

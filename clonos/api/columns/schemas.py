"""Schemas of the columns in a plan, as far as sources know them and functions declare them, and where a plan loses its
timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from clonos.api.graph_errors import InvalidJob
from clonos.api.step import Step, StepInput
from clonos.core.model.errors import ClonosError
from clonos.expressions.expression_errors import ExpressionMisused
from clonos.expressions.type_names import arrow_type, type_name
from clonos.operators.column_contract import DescribedSource
from clonos.operators.columnar.row_forms import have_equal_rows
from clonos.operators.steps.data_frames import hint_of

ADVICE: Final = (
    "Give a pyarrow.Schema, or a dataclass, NamedTuple or TypedDict with a type per column: int, float, str, bool,"
    " bytes, date, datetime, a list of one of these, or Annotated[T, t] with a type t of Arrow."
)

DIFFERENT: Final = "the streams in front of it have different columns"


def schema_of(steps: Sequence[Step], step_input: StepInput) -> Any | None:
    """Returns the ``pyarrow.Schema`` of the columns that a step gives, None if it is not known before the job runs.

    Raises: InvalidExpression: a column does not exist any more, or a type does not fit.
    """
    step = steps[step_input.step]
    if not step.emits_columns or step_input.tag:
        return None
    if step.source is not None:
        if step.is_described:
            return step.columns
        return step.source.column_schema() if isinstance(step.source, DescribedSource) else None
    if step.columns is not None:
        return step.columns
    if step.stage is None and step.form is None and not step.passes_records:
        return None
    schemas = tuple(input_schema(steps, each) for each in step.sides)
    if any(each is None for each in schemas):
        return None
    if step.form is not None:
        return None if step.form.row_reason(schemas) else step.form.results(schemas)
    if step.stage is None:
        return schemas[0]
    from clonos.expressions.program import schema_after  # loads pyarrow

    return schema_after([step.stage], schemas[0])


def input_schema(steps: Sequence[Step], inputs: Sequence[StepInput]) -> Any | None:
    """Returns the schema that several streams have, None if it is not known or they differ."""
    first, *others = (schema_of(steps, each) for each in inputs)
    if first is None or any(each is None or not have_equal_rows(first, each) for each in others):
        return None
    return first


def known_schema(steps: Sequence[Step], step_input: StepInput) -> Any | None:
    """Returns what ``schema_of`` does; None also if the input has changed since a step was added."""
    try:
        return schema_of(steps, step_input)
    except ClonosError:
        return None


def known_input(steps: Sequence[Step], step: Step) -> Any | None:
    """Returns the schema of the only input of a step, as ``known_schema`` does."""
    try:
        return input_schema(steps, step.inputs)
    except ClonosError:
        return None


def why_unknown(steps: Sequence[Step], inputs: Sequence[StepInput]) -> str:
    """Returns why the plan does not know the columns of some inputs; "" where it has not asked its sources yet."""
    if not all(step.is_described for step in steps if step.source is not None):
        return ""
    unknown = next((steps[each.step] for each in inputs if known_schema(steps, each) is None), None)
    if unknown is None:
        return DIFFERENT
    if not unknown.takes_schema and any(known_schema(steps, each) is None for each in unknown.inputs):
        return why_unknown(steps, unknown.inputs)
    takes_schema = unknown.takes_schema or getattr(unknown.source, "takes_schema", False)
    advice = "; give it schema=" if takes_schema else ""
    return f"the plan does not know the columns of {unknown.name}{advice}"


def column_texts(steps: Sequence[Step], step: Step) -> tuple[str, ...]:
    """Returns the columns of a step's results with their types, as texts; none if they are not known."""
    schema = known_schema(steps, StepInput(step.number))
    return () if schema is None else tuple(f"{field.name}: {field.type}" for field in schema)


def check_timestamps_remain(step: Step, steps: Sequence[Step]) -> None:
    """Checks that only sinks, and steps on columns in front of them, read a stream whose timestamps were left out.

    Raises: InvalidJob: another step does.
    """
    if step.sink is not None or step.stage is not None or step.assigner is not None:
        return
    for each in step.inputs:
        found = _loss(steps[each.step], steps)
        if found is not None:
            left_out, column = found
            raise InvalidJob(
                left_out.name,
                f"leaves out the column {column!r}, which has the timestamps of the stream, and {step.name} may need"
                " them",
                "Keep it under any name, or give the stream other timestamps with with_timestamps.",
            )


def _loss(step: Step, steps: Sequence[Step]) -> tuple[Step, str] | None:
    """Returns the step on columns that has left out the timestamps of a stream, and their column."""
    if step.stage is None or step.has_times:
        return None
    upstream = steps[step.inputs[0].step]
    if upstream.timestamp_column is not None:
        return step, upstream.timestamp_column.name
    return _loss(upstream, steps)


def declared_columns(step: str, function: Callable[..., Any], schema: Any) -> Any | None:
    """Returns the ``pyarrow.Schema`` of what a function gives; None if nothing says it.

    ``schema`` says it, else ``Annotated[frame, schema]`` as the annotation of the function's result, whose metadata of
    other libraries does not count.

    Raises: InvalidJob: a type of a column is none of Arrow.
    """
    if schema is None:
        hint = hint_of(function, "return")
        metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        schema = next((each for each in metadata if _is_arrow_schema(each) or _hints_of(each)), None)
        if schema is None:
            return None
    if _is_arrow_schema(schema):
        return schema.remove_metadata()
    if not (hints := _hints_of(schema)):
        raise InvalidJob(step, f"gets the columns {schema!r:.80}, which are none", ADVICE)
    import pyarrow

    return pyarrow.schema([(name, _type_of(step, name, hint)) for name, hint in hints.items()])


def _is_arrow_schema(found: Any) -> bool:
    return type(found).__module__.partition(".")[0] == "pyarrow" and type(found).__name__ == "Schema"


def _hints_of(found: Any) -> dict[str, Any]:
    """Returns the fields of a class with their types; none of anything else."""
    return get_type_hints(found, include_extras=True) if isinstance(found, type) else {}


def _type_of(step: str, name: str, hint: Any) -> Any:
    import pyarrow

    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and len(left := [each for each in arguments if each is not NoneType]) == 1:
        return _type_of(step, name, left[0])  # each column may have nulls
    if origin is Annotated:
        hint = arguments[1]
    elif origin is list:
        return pyarrow.list_(_type_of(step, name, arguments[0]))
    try:
        return arrow_type(type_name(hint, f"the column {name!r}"))
    except ExpressionMisused as error:
        raise InvalidJob(step, f"gives the column {name!r} the type {hint!r:.80}, which is none", ADVICE) from error

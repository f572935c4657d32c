"""Narrowing of sources of columns: which columns steps use, and which rows the filters after a source let through.

Only a source whose columns are known is narrowed, so that a column that is missing is named with all that there are.
A filter narrows a source only where no expression up to it can fail: a record that fails is not skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, NamedTuple, cast

from clonos.api.columns.schemas import schema_of
from clonos.api.step import Step, StepInput
from clonos.expressions.expression import Expr
from clonos.expressions.pushdown import Comparison, split_condition
from clonos.operators.column_contract import Bound, NarrowableSource
from clonos.operators.event_time.timestamps import TimestampColumn

FOREIGN: Final = ("arrow", "polars")

ReadColumns = frozenset[str] | None
"""Names of the columns that a step reads, None for all."""


class Narrowing(NamedTuple):
    """Columns of a source that are used, in their order, None for all; and bounds that each used record meets."""

    columns: tuple[str, ...] | None
    bounds: tuple[Bound, ...]


def narrowed_sources(steps: Sequence[Step], ordered: Mapping[int, Any]) -> dict[int, Any]:
    """Returns the sources that leave out what no step uses, by number of their step.

    ``ordered`` is the result of ``ordered_sources``.
    """
    found = {}
    for step in steps:
        narrowing = narrowing_of(step, steps)
        if narrowing is not None:
            source = cast(NarrowableSource, ordered.get(step.number, step.source))
            found[step.number] = source.narrowed(narrowing.columns, narrowing.bounds)
    return found


def narrowing_of(step: Step, steps: Sequence[Step]) -> Narrowing | None:
    """Returns what a source may leave out, None if that is nothing or the step is no such source."""
    source: Any = step.source
    if not isinstance(source, NarrowableSource):
        return None
    schema = schema_of(steps, StepInput(step.number))
    if schema is None:
        return None
    used = _used(step, steps)
    columns = None if used is None else tuple(name for name in schema.names if name in used)
    # Records that are skipped would not move event time.
    bounds = () if step.has_times else tuple(_bounds(step, steps, schema))
    is_whole = columns is None or len(columns) == len(schema.names)
    return None if is_whole and not bounds else Narrowing(None if is_whole else columns, bounds)


def read_after(reader: Step, keys: tuple[str, ...], timestamp_column: TimestampColumn | None) -> ReadColumns:
    """Returns the columns of records that an exchange by these keys has to carry to a step."""
    if reader.reads is None:
        return None
    return frozenset((*keys, *reader.reads, *(() if timestamp_column is None else (timestamp_column.name,))))


def _readers(step: Step, steps: Sequence[Step]) -> list[tuple[Step, StepInput]]:
    return [(reader, each) for reader in steps for each in reader.inputs if each.step == step.number]


def _used(step: Step, steps: Sequence[Step]) -> frozenset[str] | None:
    """Returns the columns of a step that others use, None for all."""
    if step.assigner is not None and step.assigner.strategy.functions:
        return None  # a strategy of the user gets the records
    found: set[str] = set() if step.timestamp_column is None else {step.timestamp_column.name}
    readers = _readers(step, steps)
    for reader, step_input in readers:
        if reader.reads is not None and step_input.key is not None and step_input.key.fields:
            read = {*step_input.key.fields, *reader.reads}
            schema = schema_of(steps, StepInput(step.number))
            if schema is None or not read <= {*schema.names}:
                return None  # the step names what is missing, and what there is
            found |= read
            continue
        if reader.stage is None or step_input.key is not None or step_input.route is not None:
            return None
        wanted = _used(reader, steps)
        if wanted is None and (schema := schema_of(steps, StepInput(reader.number))) is not None:
            wanted = frozenset(schema.names)
        needed = reader.stage.reads(wanted)
        if needed is None:
            return None
        found |= needed
    return frozenset(found) if readers else None


def _bounds(step: Step, steps: Sequence[Step], schema: Any) -> Iterator[Bound]:
    """Yields bounds that follow from the filters after a source."""
    present: dict[str, str] = {name: name for name in schema.names}  # names in the source by those at the step
    while len(readers := _readers(step, steps)) == 1:
        step, step_input = readers[0]
        if step.stage is None or step_input.key is not None or step_input.route is not None:
            return
        expressions = [each for _, each in step.stage.columns]
        if any(map(_can_fail, expressions)):
            return
        if step.stage.kind == "filter":
            for comparison in split_condition(expressions[0]).comparisons:
                if (name := present.get(comparison.column)) is not None:
                    yield from _as_bounds(comparison, name, schema.field(name).type)
        else:
            renamed = {step.stage.renamed(name): source for name, source in present.items()}
            present = {name: source for name, source in renamed.items() if name is not None}


def _can_fail(expression: Expr) -> bool:
    """Returns whether an expression may be unable to compute a record."""
    if expression.function in FOREIGN:
        return True
    is_strict = expression.function == "cast" and expression.option("strict") is not False
    return is_strict or any(map(_can_fail, expression.inputs))


def _as_bounds(comparison: Comparison, name: str, type_: Any) -> Iterator[Bound]:
    value = comparison.value
    match comparison.comparator:
        case "==" | "<" | "<=" | ">" | ">=":
            if _is_of_type(value, type_):
                yield Bound(name, cast(Any, comparison.comparator), value)
        case "is_in" if value and all(_is_of_type(each, type_) for each in value):
            yield Bound(name, ">=", min(value))
            yield Bound(name, "<=", max(value))


def _is_of_type(value: Any, type_: Any) -> bool:
    """Returns whether a constant compares with values of a column as Python compares them.

    Floats of 32 bits do not: a constant becomes one of them.
    """
    from pyarrow import types

    kind = type(value)
    if types.is_integer(type_):
        return kind is int
    if types.is_float64(type_):
        return kind in (int, float)
    if types.is_string(type_) or types.is_large_string(type_):
        return kind is str
    if types.is_timestamp(type_):
        return kind is datetime and (value.tzinfo is None) == (type_.tz is None)
    return kind is date if types.is_date32(type_) else False
